"""What the benchmarks of quality train, in which order, and what they make of the lines."""

import importlib.util
import json
import sys
from math import exp
from pathlib import Path
from types import SimpleNamespace

import pytest

from nobackfill.methods import METHODS
from nobackfill.train.run import resolve

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
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

    def train_run(recipe, folder, *, device, resume):
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


def test_a_line_for_each_wanted_method_and_seed_and_no_other(monkeypatch, tmp_path):
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
        module, name, seed, changes, device, folder = task
        trained.append((folder.name, name))
        numbers = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3, "seconds": 1.0}
        return None if name == "old" else {"method": name, "seed": seed, **numbers}

    trained = []
    monkeypatch.setattr(suite, "one_run", one_run)
    monkeypatch.setattr(
        suite.multiprocessing, "get_context", lambda kind: SimpleNamespace(Pool=Pool)
    )
    told = ["--methods", "bt2", "rm", "--seeds", "2", "--first-seed", "5", "--processes", "2"]
    monkeypatch.setattr(sys, "argv", ["tiny", *told, "-o", str(tmp_path / "tiny.jsonl")])
    suite.main("tiny", module="tiny_suite", seeds=9)
    lines = [json.loads(line) for line in (tmp_path / "tiny.jsonl").read_text().splitlines()]
    assert [(line["suite"], line["method"], line["seed"]) for line in lines] == [
        ("tiny", "rm", 5), ("tiny", "rm", 6), ("tiny", "bt2", 5), ("tiny", "bt2", 6),
    ]  # fmt: skip
    stages = [["old"], ["independent", "rm"], ["bt2"]]
    assert trained == [(seed, name) for names in stages for seed in "56" for name in names]


def lines_of(method, numbers, **more):
    keys = ("old_old", "new_old", "new_new")
    return [
        {"method": method, "seed": seed, "device": "cpu", "changes": [], **more}
        | dict(zip(keys, values, strict=True))
        for seed, values in numbers.items()
    ]


NEIGHBOR = {0: (0.4, 0.52, 0.62), 2: (0.3, 0.36, 0.7), 3: (0.1, 0.9, 0.9), 5: (0.1, 0.9, 0.9)}
BASELINE = {0: (0.4, 0.5, 0.6), 1: (0.5, 0.5, 0.7), 2: (0.3, 0.3, 0.7), 3: (0.1, 0.2, 0.3)}
CEILING = {2: (0.3, 0.1, 0.9), 1: (0.5, 0.1, 0.8), 0: (0.4, 0.1, 0.8)}
CORES = {0: (0.2, 0.1, 0.6), 1: (0.3, 0.4, 0.7), 2: (0.1, 0.3, 0.6)}
LINES = [
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


def test_a_method_is_compared_on_the_seeds_that_all_have():
    table = cells(render.comparison(LINES))
    assert list(table)[1:] == [f"`{n}`" for n in METHODS if f"`{n}`" in table]
    assert len(table) == 5
    # seeds 0 and 2: +2 and +6, whose deviation is 8 ** 0.5; +2 and 0, whose deviation is 2 ** 0.5
    means = ["35.0", "44.0", "66.0"]
    assert table["`ndpp`"][:5] == [*means, "+4.00 ± 2.00", "+1.00 ± 1.00"]
    assert table["`ndpp`"][-1] == "2/2"
    # seeds 0, 1, 2: equal is not compatible
    assert table["`prototype_alignment`"][:5] == ["40.0", "43.3", "66.7", "–", "–"]
    assert table["`prototype_alignment`"][-1] == "1/3"
    assert table["`independent`"][-1] == "0/3"
    assert table["`cores`"][-1] == "2/3"


def test_p_scores_are_of_the_independent_model_and_the_old_model_of_the_same_seed():
    table = cells(render.comparison(LINES))
    head = table["method"]
    for name, ups, comps in (
        (  # (new/new - ceiling) / ceiling, and (new/old - old/old) / (ceiling - old/old)
            "ndpp",
            [(0.62 - 0.8) / 0.8, (0.7 - 0.9) / 0.9],
            [0.12 / 0.4, 0.06 / 0.6],
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


def test_what_was_not_run_is_said():
    says = render.comparison(LINES)[0]
    missing = says.partition("Not run: ")[2]
    assert "cpu." in says
    assert "`bt2`" in missing
    assert not any(f"`{line['method']}`" in missing for line in LINES)


def test_a_later_line_takes_the_place_of_an_earlier_one():
    again = lines_of("ndpp", {0: (0.4, 0.54, 0.62)})
    assert cells(render.comparison([*LINES, *again]))["`ndpp`"][1] == "45.0"


def test_settings_and_machines_are_not_mixed(monkeypatch):
    def elsewhere(**more):
        return [{**line, **more} for line in LINES]

    lines = {
        "glyphs": [*LINES, *elsewhere(device="GPU"), *elsewhere(changes=["train.epochs=3"])],
        "omniglot": elsewhere(device="GPU"),
    }
    monkeypatch.setattr(render, "read", lambda name: lines[name])
    page = render.render_results().splitlines()
    assert [line for line in page if line.startswith("##")] == [
        "## Built-in glyphs",
        "### The same seeds on GPU",
        "## Built-in glyphs, another setting: `train.epochs=3`",
        "## Omniglot, 10 % → 100 % of the classes",
    ]
    assert [line[:13] for line in page if line[1:].startswith(" seeds")] == [
        "4 seeds, cpu.", "4 seeds, GPU.", "4 seeds, cpu.", "4 seeds, GPU.",
    ]  # fmt: skip
