"""`nobackfill bench quality` as a person or a script calls it."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.text import Text

from nobackfill.core.device import usable_cores
from nobackfill_bench import SUITES, Place, Task
from nobackfill_bench.commands import _listed
from nobackfill_bench.quality.greedy_search import Search
from nobackfill_bench.quality.output import RunOptions, in_words, jobs_for, plan
from nobackfill_bench.quality.runner import Done
from nobackfill_bench.quality.studies import STUDIES, Study

TINY = [
    "--set", "data.train_classes=20", "--set", "data.test_classes=5",
    "--set", "data.images_per_class=6", "--set", "data.side=16",
    "--set", "model.width=4", "--set", "model.embedding_dim=8",
    "--set", "train.epochs=1", "--set", "train.batch_size=16",
]  # fmt: skip


@pytest.fixture
def quality(nobackfill, monkeypatch, tmp_path):
    """Runs `nobackfill bench quality` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOBACKFILL_DATA", raising=False)
    return partial(nobackfill, "bench", "quality")


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    study = Study(
        "toy", "A toy study", "Why?", ("rm", "ndpp"), {"": (), "few": ("a.b=1",)}, seeds=1
    )
    monkeypatch.setitem(STUDIES, "toys", study)


def lines(folder, suite="toy"):
    path = folder / "benchmarks" / "quality" / f"{suite}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_real_upgrade_from_the_command_to_the_page(quality, tmp_path):
    arguments = ["--suite", "glyphs", "--seeds", 1, *TINY, "--device", "cpu", "--json"]
    good, bad = "prototype_alignment,janus", "ndpp:neighbours=3"  # the last has no such option
    code, out, err = quality(*arguments, "--methods", f"{good},{bad}")
    assert (code, out) == (2, "")  # one failed, and the others went on
    assert "1 of 3 runs failed" in err
    assert "glyphs seed 0 ndpp:neighbours=3\nTraceback" in err
    assert "ndpp:neighbours=3  (data" in err
    assert "failed: nobackfill.errors.ConfigError" in err
    made = lines(tmp_path, "glyphs")
    assert sorted(line["way"] for line in made) == ["janus", "prototype_alignment"]
    for line in made:
        assert 0 < line["new_old"] < 1
        assert line["changes"] == TINY[1::2]
    assert (tmp_path / "benchmarks" / "RESULTS.md").exists()
    assert (tmp_path / "bench-work" / "glyphs").is_dir()

    path = tmp_path / "benchmarks" / "quality" / "glyphs.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # killed while it wrote
    code, out, err = quality(*arguments, "--methods", good)
    assert (code, json.loads(out)) == (0, {"runs": 1, "results": "benchmarks/RESULTS.md"})
    again = lines(tmp_path, "glyphs")
    assert [one["new_old"] for one in again] == [one["new_old"] for one in made]
    assert again[1]["seconds"] is None  # its model was there


def test_runs_are_told_as_they_come_and_the_page_is_made(quality, toy, tmp_path):
    code, out, err = quality("--suite", "toy", "--seeds", 1)
    assert code == 0
    assert out.split() == "2 runs made; results are in benchmarks/RESULTS.md".split()
    told = err.splitlines()
    assert told[0].startswith("1/3  toy  seed 0  old  ready")
    assert sorted(line.split()[4] for line in told[1:]) == ["independent", "rm"]
    assert all("old/old 10.00  new/old 25.00  new/new 30.00" in line for line in told[1:])
    page = (tmp_path / "benchmarks" / "RESULTS.md").read_text()
    assert "## A toy upgrade (`toy`)" in page
    assert (tmp_path / "benchmarks" / "figures" / "toy.svg").exists()


def test_what_is_done_is_not_made_again(quality, toy):
    assert quality("--suite", "toy")[0] == 0
    before = len(toy.made)
    code, out, _ = quality("--suite", "toy", "--json")
    assert (code, json.loads(out)["runs"]) == (0, 0)
    assert len(toy.made) == before == 2 + 4


def test_a_failure_is_two_and_the_others_are_there(quality, toy, tmp_path):
    toy.broken.append("rm")
    code, out, err = quality("--suite", "toy", "--methods", "independent,rm", "--json")
    assert (code, out) == (2, "")
    assert "2 of 4 runs failed; the others are in benchmarks/quality" in err
    assert "toy  seed 0  rm  failed: RuntimeError: out of memory" in err
    assert [line["way"] for line in lines(tmp_path)] == ["independent"] * 2
    assert "`independent`" in (tmp_path / "benchmarks" / "RESULTS.md").read_text()
    toy.broken.clear()
    code, out, _ = quality("--suite", "toy", "--methods", "independent,rm", "--json")
    assert (code, json.loads(out)["runs"]) == (0, 2)


def test_all_that_is_asked_for_reaches_the_runs(quality, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("NOBACKFILL_DATA", str(tmp_path / "data"))
    code, _, _ = quality(
        "--suite", "toy", "--methods", "ndpp:neighbors=10,accumulate=false", "--methods", "rm",
        "--seeds", 1, "--first-seed", 7, "--set", "train.epochs=3", "--set", "a.b=[1,2]",
        "-o", "out", "--work", "here", "--device", "cpu", "--processes", 2,
    )  # fmt: skip
    assert code == 0
    place = Place(tmp_path / "here", tmp_path / "data", "cpu")
    changes = ("train.epochs=3", "a.b=[1,2]")
    ways = ("old", "ndpp:neighbors=10,accumulate=false", "rm")
    assert set(toy.made) == {Task("toy", way, 7, changes, place) for way in ways}
    assert (tmp_path / "out" / "quality" / "toy.jsonl").exists()
    assert quality("--suite", "toy", "--seeds", 1, "--data", "there")[0] == 0
    assert toy.made[-1].place.data == tmp_path / "there"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "No suite or study to run"),
        (("--suite", "glyph"), "unknown suite `glyph`. Did you mean `glyphs`"),
        (("--study", "variant"), "unknown study `variant`. Did you mean `variants`"),
        (("--suite", "glyphs", "--methods", "janu"), "unknown method `janu`. Did you mean `janus`"),
        (("--suite", "cub-heads", "--methods", "cores"), "`cores` sets its own"),
        (("--suite", "captions", "--methods", "bct"), "by `bct`: it needs more"),
        (("--seeds", "many"), "--seeds"),
    ],
)
def test_a_wrong_call_is_two_and_leaves_nothing_behind(quality, tmp_path, arguments, says):
    code, out, err = quality(*arguments)
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_list_shows_all_suites_and_studies_and_runs_nothing(quality, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    code, out, _ = quality("--list")
    assert code == 0
    for name, suite in SUITES.items():
        (row,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
        assert suite.title in row
        assert row.rstrip().endswith(", ".join(suite.requires) or "nothing")
    studies = out[out.index("Studies:") :].replace("\n", " ")
    assert all(name in studies for name in STUDIES)
    assert not list(tmp_path.iterdir())


def test_list_for_programs(quality):
    code, out, _ = quality("--list", "--json")
    told = json.loads(out)
    assert code == 0
    assert list(told["suites"]) == list(SUITES)
    assert told["studies"] == list(STUDIES)
    assert told["suites"]["omniglot"] == {
        "title": SUITES["omniglot"].title, "ways": list(SUITES["omniglot"].ways), "seeds": 5,
    }  # fmt: skip


def test_render_makes_the_page_anew_and_runs_nothing(quality, toy, tmp_path):
    quality("--suite", "toy")
    page, made = tmp_path / "benchmarks" / "RESULTS.md", len(toy.made)
    before = page.read_text()
    page.write_text("changed by hand")
    code, out, err = quality("--render", "--json")
    assert (code, json.loads(out), err) == (
        0,
        {"runs": 0, "results": str(page.relative_to(tmp_path))},
        "",
    )
    assert page.read_text() == before
    assert len(toy.made) == made
    quality("--suite", "toy", "--methods", "ndpp", "--render")
    assert len(toy.made) == made


def ask(tmp_path, **more):
    nothing = {"suites": (), "studies": (), "ways": None, "seeds": None, "first_seed": 0,
               "changes": (), "data": None, "jobs": 1, "device": "cpu"}  # fmt: skip
    return RunOptions(**nothing | {"output": tmp_path / "out", "work": tmp_path / "work"} | more)


def names(stages):
    return [[(task.way, task.seed, *task.changes) for task in stage] for stage in stages]


def test_a_study_is_planned_under_each_of_its_settings(toy, tmp_path):
    assert names(plan(ask(tmp_path, studies=("toys",)))) == [
        [("old", 0), ("old", 0, "a.b=1")],
        [("rm", 0), ("ndpp", 0), ("rm", 0, "a.b=1"), ("ndpp", 0, "a.b=1")],
    ]
    told = ask(tmp_path, studies=("toys",), seeds=2, ways=["rm"], changes=("c.d=2",))
    assert names(plan(told))[1] == [
        ("rm", 0, "c.d=2"), ("rm", 1, "c.d=2"),
        ("rm", 0, "a.b=1", "c.d=2"), ("rm", 1, "a.b=1", "c.d=2"),
    ]  # fmt: skip


def test_a_run_that_suite_and_study_share_is_made_once(quality, toy, tmp_path):
    both = names(plan(ask(tmp_path, suites=("toy",), studies=("toys",), seeds=1)))
    assert both == [
        [("old", 0), ("old", 0, "a.b=1")],
        [("independent", 0), ("rm", 0), ("ndpp", 0), ("rm", 0, "a.b=1"), ("ndpp", 0, "a.b=1")],
    ]
    assert quality("--suite", "toy", "--study", "toys", "--seeds", 1)[0] == 0
    assert len(toy.made) == len(set(toy.made)) == 7
    assert "## A toy study" in (tmp_path / "benchmarks" / "RESULTS.md").read_text()


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("ndpp,janus", ["ndpp", "janus"]),
        ("ndpp, janus", ["ndpp", "janus"]),
        ("ndpp:neighbors=10", ["ndpp:neighbors=10"]),
        ("ndpp:a=1,b=2,bct,odpp:c=3", ["ndpp:a=1,b=2", "bct", "odpp:c=3"]),
        ("ndpp:a=1,ndpp:a=2", ["ndpp:a=1", "ndpp:a=2"]),
    ],
)
def test_commas_part_ways_and_their_options(text, ways):
    assert _listed(text) == ways


def done(**more):
    place = Place(Path("work"), None, "cpu")
    return Done(Task("toy", "ndpp", 3, ("a.b=1", "c.d=2"), place), **more)


def shown(one):
    """What a console makes of it."""
    return Text.from_markup(in_words(one)).plain


def test_a_run_in_words():
    said = "toy  seed 3  ndpp  (a.b=1 c.d=2)  "
    assert shown(done()) == said + "ready"
    line = {"old_old": 0.1, "new_old": 0.25, "new_new": 0.3}
    assert shown(done(line=line)) == said + "old/old 10.00  new/old 25.00  new/new 30.00"
    line = {"matrix": [[0.1]], "ac": 2 / 3, "am": 0.456}
    assert shown(done(line=line)) == said + "AC 0.67  AM 45.60"
    error = "Traceback …\n  File x\nValueError: bad\n"
    assert shown(done(error=error)) == said + "failed: ValueError: bad"


@pytest.mark.parametrize("words", ["pip install 'nobackfill[vision]'", "nothing in [/data/cub200]"])
def test_brackets_in_an_error_are_shown_as_they_are(words):
    assert words in shown(done(error=f"DataError: {words}\n"))


@pytest.fixture
def search(toy, monkeypatch):
    options = {"old_strength": (0.1,), "neighbors": (5,)}
    study = Study(
        "toy", "A search", "?", ("independent", "prototype_alignment"), seeds=1,
        search=Search("ndpp", options),
    )  # fmt: skip
    monkeypatch.setitem(STUDIES, "search", study)
    return study


def test_a_search_is_run_to_its_end_by_one_command(quality, toy, search, tmp_path):
    assert quality("--study", "search")[0] == 0
    assert {line["way"] for line in lines(tmp_path)} == {
        "independent", "prototype_alignment", "ndpp", "ndpp:old_strength=0.1", "ndpp:neighbors=5",
    }  # fmt: skip
    assert "## A search" in (tmp_path / "benchmarks" / "RESULTS.md").read_text()
    made = len(toy.made)
    code, out, _ = quality("--study", "search")
    assert (code, len(toy.made)) == (0, made)
    assert out.startswith("0 runs made")


def test_a_search_stops_where_a_run_fails(quality, toy, search, tmp_path):
    toy.broken.append("ndpp")
    code, _, err = quality("--study", "search")
    assert code != 0
    assert "1 of 4 runs failed" in err
    toy.broken.clear()
    assert quality("--study", "search")[0] == 0
    assert len(lines(tmp_path)) == 5


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_each_core_gets_a_run(device):
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    assert jobs_for(device) == usable_cores() >= 1
