"""`nobackfill evaluate` on files without labels, and on the judgements of a person."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError

CLASSES = np.arange(240) % 60  # known to the person, not to the files
IDS = [f"item {row}" for row in range(240)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlabelled")
    centre = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))[CLASSES]
    for seed, noise, side in ((1, 1.4, "old"), (2, 0.6, "new")):
        values = torch.randn(centre.shape, generator=torch.Generator().manual_seed(seed))
        columns = {"light": np.array(["day", "night"] * 120)}
        vectors = nb.Vectors(IDS, centre + noise * values, columns=columns)
        vectors.save(folder / f"{side}.parquet")
        wide = torch.cat([vectors.vectors, values[:, :4]], dim=1)
        nb.Vectors(IDS, wide).save(folder / f"wide {side}.parquet")
    return folder


@pytest.fixture
def evaluate(folder, nobackfill):
    """Runs `nobackfill evaluate` in this process."""

    def run(*arguments, old="old", new="new"):
        sides = ["--old", folder / f"{old}.parquet", "--new", folder / f"{new}.parquet"]
        return nobackfill("evaluate", *sides, "--device", "cpu", *arguments)

    return run


def answers(folder, *, name, is_right, marks=False, changes=None):
    """Writes the answers of a person to whom some side is right."""
    old, new = (nb.load_vectors(folder / f"{side}.parquet") for side in ("old", "new"))
    lines = []
    for change in changes or nb.compare_rankings(old, new).changes():
        shown = [*change.before, *change.after]
        number = CLASSES[IDS.index(change.query)]
        hits = [item for item in dict.fromkeys(shown) if CLASSES[IDS.index(item)] == number]
        lines.append(
            {
                "query": change.query,
                "relevant": hits if marks else [],
                "before": change.before,
                "after": change.after,
                "preferred": is_right,
            }
        )
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("gate", [[], ["--require-compatible"]])
def test_quality_was_not_measured_and_the_exit_code_says_so(evaluate, gate):
    code, out, err = evaluate(*gate)
    assert (code, err) == (3, "")
    assert out.startswith("Undecided: Quality was not measured")
    assert "Not measured: quality." in out
    assert len(out.splitlines()) <= 25
    code, out, err = evaluate("--json", *gate)
    facts = json.loads(out)
    assert (code, err) == (3, "")
    assert (facts["verdict"], facts["compatible"]) == ("undecided", None)
    assert facts["quality_measured"] is False
    assert 0 < facts["overlap"]["new_old"]["10"] < 1
    assert len(facts["sample"]) == 50


def test_python_does_the_same(evaluate, folder):
    old, new = (nb.load_vectors(folder / f"{side}.parquet") for side in ("old", "new"))
    agreement = nb.compare_rankings(old, new)
    assert json.loads(evaluate("--json")[1]) == agreement.summary()
    assert str(agreement) == evaluate()[1].rstrip("\n")
    assert agreement.verdict == "undecided"
    assert "undecided" in agreement._repr_html_().lower()
    assert repr(agreement).count("\n") == 0
    # arrays, too; rows are then matched by position
    arrays = nb.compare_rankings(old.vectors.numpy(), new.vectors.tolist())
    assert arrays.overlaps() == agreement.overlaps()
    assert "matched by position" in arrays.notes[0]


def test_python_names_what_needs_no_labels(folder):
    old, new = (nb.load_vectors(folder / f"{side}.parquet") for side in ("old", "new"))
    with pytest.raises(DataError, match="compare_rankings"):
        nb.evaluate(old, new)
    with pytest.raises(DataError, match="assess_rankings"):
        nb.assess(old, new)
    with pytest.raises(DataError, match="no judgements"):
        nb.judge(old, new, {IDS[0]: [IDS[60]]})
    judged = answers(folder, name="python", is_right="after")
    with pytest.raises(ConfigError, match="judge"):
        nb.evaluate(old, new, pairs=judged)
    assert nb.judge(old, new, judged).verdict == "compatible"
    assert str(nb.judge(old, new, judged)).startswith("Compatible: New results are better for")


@pytest.mark.parametrize(
    ("preferred", "verdict", "code"),
    [("after", "compatible", 0), ("before", "not compatible", 1), ("equal", "undecided", 3)],
)
def test_judgements_give_a_verdict_and_its_exit_code(evaluate, folder, preferred, verdict, code):
    path = answers(folder, name=preferred, is_right=preferred)
    facts = json.loads(evaluate("--pairs", path, "--json")[1])
    assert facts["verdict"] == verdict
    assert facts["preference"][{"after": "better", "before": "worse"}.get(preferred, "equal")] > 20
    assert evaluate("--pairs", path)[0] == 0
    gated, out, _ = evaluate("--pairs", path, "--require-compatible", "--report", folder / "j.html")
    assert gated == code
    assert out.startswith(verdict.capitalize())
    assert verdict in (folder / "j.md").read_text()


def test_a_preference_against_the_marks_is_mixed(evaluate, folder):
    path = answers(folder, name="marks", is_right="before", marks=True)
    code, out, _ = evaluate("--pairs", path, "--require-compatible")
    assert (code, out.split(":")[0]) == (3, "Mixed")
    assert "mAP" in out


def test_judgements_of_other_vectors_do_not_count(evaluate, folder):
    old, new = (nb.load_vectors(folder / f"{side}.parquet") for side in ("old", "new"))
    swapped = nb.compare_rankings(new, old).changes()
    path = answers(folder, name="stale", is_right="after", changes=swapped)
    code, _, err = evaluate("--pairs", path)
    assert code == 2
    assert "judgements are on other vectors" in err


@pytest.mark.parametrize(
    "option",
    [
        ["--slice", "light"],
        ["--flips", "5"],
        ["--false-accept", "0.01"],
        ["--min-gain", "0.01"],
        ["--max-negative-flips", "0.1"],
        ["--by-modality"],
        ["--save-queries", "queries.parquet"],
        ["--independent", "old.parquet"],
    ],
    ids=lambda option: option[0],
)
def test_options_that_need_labels_say_so(evaluate, folder, option):
    arguments = [folder / part if "." in part and part[0].isalpha() else part for part in option]
    code, out, err = evaluate(*arguments)
    assert (code, out) == (2, "")
    assert f"{option[0]} requires labels or complete pairs, but neither " in err
    path = answers(folder, name="option", is_right="after")
    if option[0] != "--by-modality":
        code, _, err = evaluate("--pairs", path, *arguments)
        assert code == 2
        assert f"{option[0]} requires labels or complete pairs, but this file of pairs has" in err


def test_a_column_of_labels_or_pairs_measure_quality_as_ever(evaluate, folder):
    assert "mAP" in evaluate("--label", "light")[1]
    pairs = folder / "pairs.csv"
    pairs.write_text("\n".join(["query,relevant", *(f"{a},{b}" for a, b in zip(IDS, IDS[60:]))]))  # noqa: B905
    assert "mAP" in evaluate("--pairs", pairs)[1]


def test_another_dimension_compares_only_what_can_be(evaluate, folder):
    code, out, _ = evaluate("--report", folder / "wide.html", new="wide new")
    assert code == 3
    assert "new/old was not compared: new queries have 20 dimensions and old vectors 16" in out
    assert "judging-data" not in (folder / "wide.html").read_text()


def test_without_a_report_no_page_is_loaded(folder):
    code = """if True:
        import sys
        from nobackfill.cli.main import main
        try:
            main()
        except SystemExit as stop:
            assert stop.code == 3
        names = [name for name in sys.modules if name.split(".")[0] in ("jinja2", "matplotlib")]
        names += [name for name in sys.modules if name.startswith("nobackfill.training")]
        assert not names, names
    """
    sides = ["--old", str(folder / "old.parquet"), "--new", str(folder / "new.parquet")]
    subprocess.run([sys.executable, "-c", code, "evaluate", *sides], check=True)
