"""`nobackfill evaluate` query by query, as a person and as a program see it."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb

LABELS = np.arange(240) % 24
LIGHT = np.where(np.arange(240) % 5 == 0, "[red]night", "day")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    centre = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))
    for name, seed, noise in (("old", 1, 1.0), ("new", 2, 0.9)):
        generator = torch.Generator().manual_seed(seed)
        values = centre[LABELS] + noise * torch.randn(240, 12, generator=generator)
        columns = {"light": LIGHT}
        nb.Vectors(np.arange(240), values, LABELS, columns=columns).save(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def evaluation(files):
    return nb.evaluate(*(nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new")))


@pytest.fixture
def asked(files, nobackfill):
    """Runs `nobackfill evaluate` in this process."""
    sides = ["--old", files / "old.parquet", "--new", files / "new.parquet", "--device", "cpu"]
    return lambda *arguments: nobackfill("evaluate", *sides, *arguments)


def test_programs_get_slices_flips_and_thresholds(asked, evaluation, tmp_path):
    code, out, err = asked(
        "--json", "--slice", "light", "--slice", "label", "--smallest", "1", "--flips", "5",
        "--false-accept", "0.01", "--save-queries", tmp_path / "queries.parquet", "--seed", "0",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found, comparison = json.loads(out), nb.compare(evaluation)
    assert [one["value"] for one in found["slices"]["light"]] == [
        one.value for one in comparison.slices("light")
    ]
    assert found["slices"]["light"][0]["difference"]["mean"] == pytest.approx(
        comparison.slices("light")[0].difference.mean
    )
    assert len(found["slices"]["label"]) == 24
    assert [one["query"] for one in found["flipped"]] == [o.query for o in comparison.flipped(5)]
    assert [one["query"] for one in found["won"]] == [o.query for o in comparison.won(5)]
    assert [one["pair"] for one in found["thresholds"]] == ["old_old", "new_old", "new_new"]
    assert found["thresholds"][1]["value"] == pytest.approx(comparison.thresholds(0.01)[1].value)
    assert pq.read_table(tmp_path / "queries.parquet").num_rows == 240
    assert "slices" not in json.loads(asked("--json")[1])


def test_people_read_the_worst_first(asked, evaluation):
    code, out, _ = asked("--slice", "light", "--flips", "1", "--false-accept", "0.01")
    assert code == 0
    assert "By light" in out
    assert "[red]night" in out  # what is in a column is text, not a colour
    lost, won = len(nb.compare(evaluation).flipped(1)), len(nb.compare(evaluation).won(1))
    assert f"{lost} queries lose their hit in the top 1, {won} gain one." in out
    assert "own class passes" in out
    worst = nb.compare(evaluation).flipped(1)[0]
    assert f"{worst.query}: first hit 1 → {worst.rank_after}" in out


def test_small_slices_are_left_out(asked):
    found = json.loads(asked("--json", "--slice", "light", "--smallest", "100")[1])
    assert [one["value"] for one in found["slices"]["light"]] == ["day"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--slice", "ligth"], "Did you mean `light`"),
        (["--false-accept", "2"], "between 0 and 1"),
        (["--flips", "0"], "k"),
    ],
)
def test_what_cannot_be_told_is_two(asked, arguments, says):
    code, out, err = asked(*arguments)
    assert code == 2
    assert says in err
    assert out == ""


def first_answers(folder, worse):
    """An upgrade that gains mAP; of the queries every sixth finds something else first, or none.

    Old queries have a twin in the gallery, new ones lie amidst their class.
    """
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(24, 12, generator=generator)
    stored = centre[LABELS] + torch.randn(240, 12, generator=generator)
    old, new = stored.clone(), stored.clone()
    old[:48] = stored[48:96] if worse else torch.randn(48, 12, generator=generator)
    astray = (torch.arange(48) % 6 == 0)[:, None] * 0.9 * stored[100:148]
    new[:48] = centre[LABELS[:48]] + astray
    asks = np.arange(240) < 48
    roles = {"is_query": asks, "is_gallery": ~asks}
    for name, values in (("old", old), ("new", new)):
        nb.Vectors(np.arange(240), values, LABELS, columns=roles).save(folder / f"{name}.npz")
    return ["--old", folder / "old.npz", "--new", folder / "new.npz"]


def test_the_verdict_says_where_first_answers_get_worse(asked, tmp_path):
    sides = first_answers(tmp_path, worse=True)
    code, out, _ = asked(*sides, "--require-compatible")
    verdict = out.splitlines()[0]
    assert code == 3
    assert verdict.startswith("Mixed: ")
    found = nb.evaluate(*(nb.load_vectors(path) for path in sides[1::2]))
    after = 100 * found.new_old.recall(1)
    assert "users who take the first result get fewer hits." in verdict
    assert "Decide which metric your users feel" in verdict
    assert (
        f"The first answers get worse: Recall@1 falls from 100.00 to "
        f"{after:.2f} %, and more queries lose their first hit than gain one. (48 queries, "
    ) in verdict


def test_the_user_decides_which_metric_counts(asked, tmp_path):
    sides = first_answers(tmp_path, worse=True)
    for metrics, code in ((["map"], 0), (["recall_at_1"], 1), (["map", "ndcg_at_10"], 0)):
        options = [part for metric in metrics for part in ("--metric", metric)]
        assert asked(*sides, "--require-compatible", *options)[0] == code
    assert asked(*sides, "--metric", "mapp")[0] == 2
    assert asked(*sides, "--require-compatible", "--metric", "map", "--min-gain", "0.9")[0] == 1
    limits = ("--metric", "map", "--max-negative-flips")
    assert asked(*sides, "--require-compatible", *limits, "0.0")[0] == 1
    assert asked(*sides, "--require-compatible", *limits, "1.0")[0] == 0


def test_where_first_answers_gain_nothing_is_said_of_them(asked, tmp_path):
    out = asked(*first_answers(tmp_path, worse=False))[1]
    assert "Compatible: " in out
    assert "without embedding the gallery again. (48 queries, 192 gallery items)" in out
    assert "first answers" not in out


def test_queries_that_count_are_told_of_those_that_asked(asked, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["query,relevant", *(f"{i},{i + 24}" for i in range(60))]))
    out = asked("--ground-truth", pairs)[1]
    assert "(60 of 240 queries, 240 gallery items)" in out
    found = json.loads(asked("--pairs", pairs, "--json")[1])
    assert (found["num_queries"], found["num_asked"]) == (60, 240)
    assert "(240 queries, 240 gallery items)" in asked()[1]


def test_the_same_file_twice_is_told_of(asked, files):
    code, out, _ = asked("--new", files / "old.parquet", "--require-compatible")
    assert code == 3
    assert "Note: the old and the new vectors of the queries are the same" in out
    assert "+0.00 (+0.00 to +0.00) points of mAP against the old one: nothing changes. (240" in out
    assert "Evaluate with more queries" not in out


@pytest.fixture
def scenes(files, tmp_path):
    """The same vectors with a column `scene` that says what `label` said, and another `label`."""
    scene = {"scene": [f"scene {label:02}" for label in LABELS]}
    for side in ("old", "new"):
        file = nb.load_vectors(files / f"{side}.parquet")
        nb.Vectors(file.ids, file.vectors, LABELS % 3, columns=scene).save(tmp_path / f"{side}.npz")
    return {f"--{side}": tmp_path / f"{side}.npz" for side in ("old", "new")}


@pytest.mark.parametrize("option", ["--label", "--group"])
def test_a_column_of_groups_is_one_of_labels(asked, scenes, option):
    sides = [part for side in scenes.items() for part in side]
    found = json.loads(asked(*sides, option, "scene", "--slice", "label", "--json")[1])
    expected = json.loads(asked("--json")[1])
    told = {one["value"] for one in found.pop("slices")["label"]}
    assert told == {f"scene {label:02}" for label in range(24)}
    assert found == expected
    assert json.loads(asked(*sides, "--json")[1])["old_old"] != expected["old_old"]


def test_groups_may_stand_in_the_file_of_mapped_queries(asked, files, scenes, tmp_path):
    old = nb.load_vectors(files / "old.parquet")
    nb.Vectors(old.ids, old.vectors).save(tmp_path / "bare.npz")
    bare, mapped = ["--old", tmp_path / "bare.npz"], ["--query-for-old", scenes["--new"]]
    found = json.loads(asked(*bare, *mapped, "--label", "scene", "--json")[1])
    assert found["new_old"] == json.loads(asked("--json")[1])["new_old"]


def test_groups_and_listed_answers_are_two_accounts(asked, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("query,relevant\n0,24\n")
    code, out, err = asked("--pairs", pairs, "--label", "light")
    assert (code, out) == (2, "")
    assert "--pairs and --label both define" in err


def test_a_plain_evaluation_loads_neither_training_nor_plotting(files):
    code = "import runpy, sys\n"
    code += "try: runpy.run_module('nobackfill', run_name='__main__', alter_sys=False)\n"
    code += "except SystemExit: pass\n"
    code += "print(*sys.modules, file=sys.stderr)"
    arguments = ["evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    loaded = done.stderr.split()
    rooms = {".".join(name.split(".")[:2]) for name in loaded}
    assert not rooms & {
        "matplotlib", "jinja2", "PIL", "nobackfill_bench", "nobackfill.training",
        "nobackfill.models",
    }  # fmt: skip
    assert sum(name.split(".")[0] == "nobackfill" for name in loaded) <= 80
