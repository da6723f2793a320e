"""What the benchmarks of quality train, in which order, and what they make of the lines."""

import importlib.util
import json
import sys
from itertools import combinations
from math import exp
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nobackfill.methods import METHODS
from nobackfill.train.run import resolve

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
    sys.path.insert(0, str(BENCHMARKS))  # where they find each other
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


suite, render = load("suite"), load("render")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["ndpp"], [["old"], ["ndpp"], []]),
        (["bt2", "ndpp"], [["old"], ["independent", "ndpp"], ["bt2"]]),
        (["bt2", "ndpp", "independent"], [["old"], ["ndpp", "independent"], ["bt2"]]),
        (["cores"], [["old", "cores_old"], ["cores"], []]),
    ],
)
def test_what_others_start_from_is_trained_before_them(wanted, expected):
    assert suite.stages(wanted) == expected


def test_all_methods_are_trained_once():
    first, second, third = suite.stages(list(METHODS))
    assert first == ["old", "cores_old"]
    assert sorted(second + third) == sorted(METHODS)


def test_two_methods_need_more_than_the_shared_recipe(monkeypatch):
    monkeypatch.setitem(sys.modules, "suite", suite)
    glyphs = load("glyphs")

    def recipe(name, told=None):
        changes = suite.own_changes(name, Path("runs"), **glyphs.SIZES)
        return resolve(glyphs.make_recipe(told or name, Path("runs/old"), seed=3, changes=changes))

    shared = recipe("ndpp")
    assert shared.model.options["embedding_dim"] == glyphs.SIZES["embedding_dim"] == 64
    assert shared.data.options["train_classes"] == glyphs.SIZES["train_classes"] == 200
    bt2 = recipe("bt2")
    assert bt2.model.options["embedding_dim"] == 64 + 64  # the independent and the old dimensions
    assert (bt2.old.run, bt2.old.independent) == ("runs/old", "runs/independent")
    cores, its_old = recipe("cores"), recipe("cores_old", "old")
    assert cores.old.run == "runs/cores_old"
    assert (its_old.method.name, its_old.old.run, its_old.train.step) == ("cores", None, 0)
    for one in (cores, its_old):
        assert one.model.options["embedding_dim"] == 199  # one corner more than dimensions


@pytest.fixture
def told(monkeypatch):
    """What one run is told, where nothing is trained."""
    told = []

    def make_recipe(name, old_run, *, seed, changes):
        told.append((name, str(old_run), seed, changes))

    def train_run(recipe, folder, *, device, resume, decoding):
        assert resume
        folder.mkdir(parents=True)
        result = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3, "independent": None}
        (folder / "evaluation.json").write_text(json.dumps({**result, "recall_at_1": result}))
        return []

    sizes = {"embedding_dim": 8, "train_classes": 10}
    module = SimpleNamespace(make_recipe=make_recipe, SIZES=sizes)
    monkeypatch.setitem(sys.modules, "tiny_suite", module)
    monkeypatch.setattr("nobackfill.upgrade.train_run", train_run)
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    return told


def test_changes_from_outside_come_last(told, tmp_path):
    own = ["model.embedding_dim=16", f"old.independent={tmp_path / 'independent'}"]
    changes = ["train.epochs=3"]
    line = suite.one_run(("tiny_suite", "bt2", 4, changes, "cpu", tmp_path))
    assert told == [("bt2", str(tmp_path / "old"), 4, [*own, *changes])]
    assert (line["method"], line["seed"], line["changes"]) == ("bt2", 4, changes)
    values = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3}
    assert {key: line[key] for key in values} == line["recall_at_1"] == values


def test_old_models_are_told_so_and_leave_no_line(told, tmp_path):
    for name in ("old", "cores_old"):
        assert suite.one_run(("tiny_suite", name, 0, [], "cpu", tmp_path)) is None
        assert (tmp_path / name).exists()
    assert [name for name, *_ in told] == ["old", "old"]
    assert told[0][3] == []
    assert told[1][3] == ["model.embedding_dim=9", "method.name=cores"]


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """What a suite trains, one after the other, where nothing is trained."""

    class Pool:
        def __init__(self, processes):
            assert processes == 2

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def imap_unordered(self, function, tasks):
            return map(function, tasks)

    def one_run(task):
        _, name, seed, changes, device, folder = task
        trained.append((folder.name, name))
        numbers = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3, "seconds": 1.0}
        said = {"method": name, "seed": seed, "changes": changes, "device": device}
        return None if name == "old" else said | numbers

    trained = []
    monkeypatch.setattr(suite, "one_run", one_run)
    monkeypatch.setattr(
        suite.multiprocessing, "get_context", lambda kind: SimpleNamespace(Pool=Pool)
    )
    return trained


def run_suite(monkeypatch, output, *more):
    """The lines there are after a suite of two methods and two seeds was run."""
    told = ["--methods", "bt2", "rm", "--seeds", "2", "--first-seed", "5", "--processes", "2"]
    monkeypatch.setattr(sys, "argv", ["tiny", *told, "-o", str(output), *map(str, more)])
    suite.main("tiny", module="tiny_suite", seeds=9)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(line["suite"] == "tiny" for line in lines)
    return [(line["method"], line["seed"], *line["changes"]) for line in lines]


def test_a_line_for_each_wanted_method_and_seed_and_no_other(trained, monkeypatch, tmp_path):
    lines = run_suite(monkeypatch, tmp_path / "tiny.jsonl")
    assert lines == [("rm", 5), ("rm", 6), ("bt2", 5), ("bt2", 6)]
    stages = [["old"], ["independent", "rm"], ["bt2"]]
    assert trained == [(seed, name) for names in stages for seed in "56" for name in names]


def test_what_goes_on_writes_no_line_twice(trained, monkeypatch, tmp_path):
    output, work = tmp_path / "tiny.jsonl", ("--work", tmp_path)
    once = run_suite(monkeypatch, output, *work)
    assert run_suite(monkeypatch, output, *work) == once
    other = run_suite(monkeypatch, output, *work, "--set", "train.epochs=3")
    assert other == once + [(*line, "train.epochs=3") for line in once]
    assert len(run_suite(monkeypatch, output, *work, "--device", "meta")) == 12  # another machine
    assert len(run_suite(monkeypatch, output)) == 16  # without a place to go on from, all anew


def lines_of(method, numbers, **more):
    keys = ("old_old", "new_old", "new_new")
    return [
        {"method": method, "seed": seed, "device": "cpu", "changes": [], **more}
        | dict(zip(keys, values, strict=True))
        for seed, values in numbers.items()
    ]


NEIGHBOR = {0: (0.4, 0.52, 0.62), 2: (0.3, 0.36, 0.7), 4: (0.3, 0.46, 0.8), 5: (0.2, 0.1, 0.9)}
BASELINE = {0: (0.4, 0.5, 0.6), 1: (0.5, 0.5, 0.7), 2: (0.3, 0.3, 0.7), 3: (0.1, 0.2, 0.3)}
CEILING = {4: (0.3, 0.1, 0.7), 2: (0.3, 0.1, 0.9), 1: (0.5, 0.1, 0.8), 0: (0.4, 0.1, 0.8)}
CORES = {0: (0.2, 0.1, 0.6), 1: (0.3, 0.4, 0.7), 2: (0.1, 0.3, 0.6)}
LINES = [
    *lines_of("rm", {3: (0.1, 0.22, 0.4)}),
    *lines_of("ndpp", NEIGHBOR),
    *lines_of("cores", CORES),
    *lines_of("prototype_alignment", BASELINE),
    *lines_of("independent", CEILING),
]


def cells(lines):
    """The rows of a table in Markdown, by their first cell."""
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows if not row[0].startswith("--")}


def percent(values):
    return f"{100 * sum(values) / len(values):.1f}"


def logistic(value):
    return 1 / (1 + exp(-value))


def test_a_method_is_compared_with_the_baseline_on_the_seeds_of_both():
    table = cells(render.comparison(LINES))
    assert list(table)[1:] == [f"`{n}`" for n in METHODS if f"`{n}`" in table]
    assert len(table) == 6
    # on seeds 0 and 2: +2 and +6, of deviation 8 ** 0.5; +2 and 0, of deviation 2 ** 0.5
    means = ["4", "30.0", "36.0", "75.5"]
    assert table["`ndpp`"][:6] == [*means, "+4.00 ± 2.00", "+1.00 ± 1.00"]
    assert table["`prototype_alignment`"][:6] == ["4", "32.5", "37.5", "57.5", "–", "–"]
    assert table["`rm`"][:6] == ["1", "10.0", "22.0", "40.0", "+2.00", "+10.00"]


def test_equal_is_not_compatible():
    table = cells(render.comparison(LINES))
    compatible = {name.strip("`"): row[-1] for name, row in table.items()}
    assert compatible == {
        "method": "compatible", "independent": "0/4", "prototype_alignment": "2/4", "ndpp": "3/4",
        "cores": "2/3", "rm": "1/1",
    }  # fmt: skip


def test_p_scores_are_of_the_independent_model_and_the_old_model_of_the_same_seed():
    table = cells(render.comparison(LINES))
    head = table["method"]
    for name, ups, comps in (
        (  # (new/new - ceiling) / ceiling, and (new/old - old/old) / (ceiling - old/old)
            "ndpp",
            [(0.62 - 0.8) / 0.8, (0.7 - 0.9) / 0.9, (0.8 - 0.7) / 0.7],
            [0.12 / 0.4, 0.06 / 0.6, 0.16 / 0.4],
        ),
        (  # whose old model is another than that of the Baseline
            "cores",
            [(0.6 - 0.8) / 0.8, (0.7 - 0.8) / 0.8, (0.6 - 0.9) / 0.9],
            [-0.1 / 0.6, 0.1 / 0.5, 0.2 / 0.8],
        ),
    ):
        up, comp = [logistic(x) for x in ups], [logistic(x) for x in comps]
        both = [2 * a * b / (a + b) for a, b in zip(up, comp, strict=True)]
        shown = dict(zip(head, table[f"`{name}`"], strict=True))
        assert [shown[key] for key in ("P_up", "P_comp", "P_1")] == [
            percent(values) for values in (up, comp, both)
        ]
    assert table["`rm`"][6:9] == ["–", "–", "–"]  # no independent model of its seed


def test_what_was_not_run_is_said():
    says = render.comparison(LINES)[0]
    assert says == "Trained on cpu. The other methods were not run."
    line = LINES[0]
    most = [{**line, "method": name} for name in METHODS if name not in ("bt2", "rm")]
    assert render.comparison(most)[0] == "Trained on cpu. Not run: `bt2`, `rm`."
    assert render.comparison([{**line, "method": name} for name in METHODS])[0] == "Trained on cpu."


def test_a_later_line_takes_the_place_of_an_earlier_one():
    again = lines_of("ndpp", {0: (0.4, 0.56, 0.62)})
    assert cells(render.comparison([*LINES, *again]))["`ndpp`"][:3] == ["4", "30.0", "37.0"]


def test_settings_and_machines_are_not_mixed(monkeypatch):
    def elsewhere(**more):
        return [{**line, **more} for line in LINES]

    lines = {
        "glyphs": [*LINES, *elsewhere(device="GPU"), *elsewhere(changes=["train.epochs=3"])],
        "omniglot": elsewhere(device="GPU"),
    }
    monkeypatch.setattr(render, "read", lambda name: lines.get(name, []))
    page = render.render_results().splitlines()
    assert [line for line in page if line.startswith("##")] == [
        "## Built-in glyphs",
        "### The same seeds on GPU",
        "## Built-in glyphs, another setting: `train.epochs=3`",
        "## Omniglot, 10 % → 100 % of the classes",
    ]
    assert [line.split(".")[0] for line in page if line.startswith("Trained on")] == [
        "Trained on cpu", "Trained on GPU", "Trained on cpu", "Trained on GPU",
    ]  # fmt: skip


@pytest.mark.parametrize(("relevant", "gallery"), [(1, 4), (2, 5), (3, 3)])
def test_chance_is_the_mean_over_all_rankings(relevant, gallery):
    values = []
    for places in combinations(range(1, gallery + 1), relevant):
        found = [hits / place for hits, place in enumerate(places, start=1)]
        values.append(sum(found) / relevant)
    assert load("suites").chance(relevant, gallery) == pytest.approx(
        100 * sum(values) / len(values)
    )


def head_line(way, seed, new_old, new_new, *, kind="head", **more):
    return {
        "setting": "cub200", "kind": kind, "way": way, "seed": seed, "epochs": None,
        "device": "cpu", "old_old": 0.1, "new_old": new_old, "new_new": new_new, "raw_old": 0.1,
        "raw_new": 0.2, "independent": None, "seconds": 3.0,
        "verdict": "compatible" if new_old > 0.11 else "undecided", **more,
    }  # fmt: skip


def test_heads_that_make_new_vectors_worse_are_named_first():
    ridge = head_line("ridge", 0, 0.09, 0.1, kind="closed form")
    ndpp = [head_line("ndpp", 0, 0.12, 0.3), head_line("ndpp", 1, 0.14, 0.5)]
    page = render.render_heads([ridge, *ndpp])
    first = page.index("### " + load("heads_settings").SETTINGS["cub200"].says) + 2
    assert page[first] == (
        "After a full backfill, raw new vectors (20.00) are above 1 of 2 ways: `ridge` "
        "(closed form)."
    )
    assert page[first + 2] == "Old/old 10.00 (raw), raw new/new 20.00. Fitted on cpu."
    assert "| `ndpp` | head | 2 | 13.00 | +3.00 ± 1.00 | 40.00 | 2/2 |" in page
    assert "| `ridge` | closed form | 1 | 9.00 | -1.00 | 10.00 | 0/1 |" in page
    assert "are above every way." in "\n".join(render.render_heads([ridge]))
    assert "No trained model is below its raw input." in render.render_heads(ndpp)


def test_ways_are_sorted_by_what_they_find_in_the_old_gallery():
    lines = [
        head_line(way, 0, value, 0.3) for way, value in zip("abc", (0.1, 0.3, 0.2), strict=True)
    ]
    assert list(cells(render.render_heads(lines)))[1:] == ["`b`", "`c`", "`a`"]


def test_trained_models_below_their_raw_input_come_first():
    more = {"setting": "cub200_trained", "raw_old": 0.15, "independent": 0.18}
    page = render.render_heads(
        [
            head_line("ndpp", 0, 0.12, 0.3, **more, best_epoch=0),
            head_line("ndpp", 0, 0.12, 0.3, **more, kind="from scratch"),
        ]
    )
    assert (
        "The old head (10.00) is below its raw input (15.00). "
        "The independent head (18.00) is below its raw input (20.00)." in page
    )
    assert (
        "Old/old 10.00, raw old/old 15.00, raw new/new 20.00, independent 18.00. Fitted on cpu. "
        "No epoch was better on the held-out classes than the closed form that they begin with for "
        "`ndpp` (head)." in page
    )


def test_lines_of_an_older_form_and_tries_are_not_shown():
    line = head_line("ndpp", 0, 0.12, 0.3)
    older = {key: value for key, value in line.items() if key != "kind"}
    assert render.render_heads([older, line | {"epochs": 2}]) == []
    again = render.render_heads([line, line | {"new_old": 0.14}])
    assert cells(again)["`ndpp`"][1:4] == ["1", "14.00", "+4.00"]
    assert render.render_heads([]) == render.render_nulls([]) == []


class OneByOne:
    """A pool of processes that is none."""

    def __init__(self, processes):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def imap_unordered(self, function, tasks):
        return map(function, tasks)


@pytest.fixture
def heads(monkeypatch, tmp_path):
    """The benchmark of heads, on few small features, one job after the other."""
    generator = np.random.default_rng(0)
    labels = np.arange(20 * 6) % 20
    rows = [
        f"{item}.jpg,{label},{'train' if label < 10 else 'validation'},{label >= 10},{label >= 10}"
        for item, label in enumerate(labels)
    ]
    (tmp_path / "cub200").mkdir()
    manifest = "\n".join(["path,label,split,is_query,is_gallery", *rows])
    (tmp_path / "cub200" / "manifest.csv").write_text(manifest)
    sides = {
        name: generator.normal(size=(20, dim))[labels] + generator.normal(size=(120, dim))
        for name, dim in (("mobilenet_v2", 6), ("resnet50", 8))
    }
    np.savez(tmp_path / "cub200" / "features.npz", **sides)
    monkeypatch.setenv("NOBACKFILL_DATA", str(tmp_path))
    heads = load("heads")
    monkeypatch.setattr(
        heads.multiprocessing, "get_context", lambda kind: SimpleNamespace(Pool=OneByOne)
    )
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    return heads


def run_heads(heads, monkeypatch, output, *more):
    told = ["--settings", "cub200_trained", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    ways = ["--ways", "ridge", "cross_supcon", "independent"]
    monkeypatch.setattr(sys, "argv", ["heads", *told, *ways, "-o", str(output), *more])
    heads.main()
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_every_way_of_heads_leaves_one_line(heads, monkeypatch, tmp_path):
    output = tmp_path / "heads.jsonl"
    output.write_text('{"setting": "cub200_trained", "way": "ridge", "seed": 0}\n')  # older form
    lines = run_heads(heads, monkeypatch, output, "--resume")[1:]
    assert [(line["kind"], line["way"]) for line in lines] == [
        ("closed form", "ridge"),
        ("head", "cross_supcon"),
        ("head", "independent"),
        ("from scratch", "cross_supcon"),
        ("from scratch", "independent"),
    ]
    for key in ("old_old", "raw_old", "raw_new", "independent"):
        assert len({line[key] for line in lines}) == 1, key  # all have the same old head
    assert lines[-1]["new_new"] == lines[-1]["independent"]  # which is this very one
    assert len(run_heads(heads, monkeypatch, output, "--resume")) == 6
    assert len(run_heads(heads, monkeypatch, output)) == 11


def test_one_failure_does_not_stop_the_others(heads, monkeypatch, tmp_path, capsys):
    def fails(job, old, new):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(heads.FITS, "head", fails)
    with pytest.raises(SystemExit, match="2 of 5 failed"):
        run_heads(heads, monkeypatch, tmp_path / "heads.jsonl")
    assert len((tmp_path / "heads.jsonl").read_text().splitlines()) == 3
    assert "out of memory" in capsys.readouterr().err


def test_heads_are_fitted_by_every_method_that_they_allow(heads):
    assert {"cross_supcon", "ndpp", "independent"} <= set(heads.usable())
    assert not {"bct", "rm", "cores"} & set(heads.usable())


def test_verdicts_are_counted_by_kind():
    page = "\n".join(
        render.render_nulls(
            [{"kind": "noise", "upgrades": 4, "verdicts": {"keep": 3, "go": 1}, "mean_gain": -0.1}]
        )
    )
    assert "|  | upgrades | go | keep | mean gain of the chosen |" in page
    assert "| `noise` | 4 | 1 | 3 | -10.00 |" in page
