"""What commands on galleries print."""

from nobackfill.cli.gallery.output import print_work
from nobackfill.gallery.backfill import Work


def test_what_a_backfill_would_do_has_its_size_and_time(capsys):
    work = Work("photos__nobackfill_v2", 9, 2, 1, 6, numbers=3 * 2**18, seconds=180.0)
    print_work(work, dry_run=True, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert text == (
        "Nothing was written. Of 9 planned items 2 have a new vector; 6 would be written into "
        "`photos__nobackfill_v2` (3.0 MiB), which takes 3 min. The owner has removed 1."
    )
