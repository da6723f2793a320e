"""Where a page lies is told to people, and to nobody else."""

from pathlib import Path

import pytest

from nobackfill.cli.output import print_page


def test_people_are_told_where_a_page_lies(capsys):
    print_page(Path("a/[b] page.html"), as_json=False)
    assert capsys.readouterr().out == "Report: a/[b] page.html\n"


@pytest.mark.parametrize(("path", "as_json"), [(None, False), (Path("a.html"), True)])
def test_without_a_page_and_for_programs_nothing_is_printed(capsys, path, as_json):
    print_page(path, as_json=as_json)
    assert capsys.readouterr().out == ""
