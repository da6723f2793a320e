"""Results beside the numbers that a recipe expects: in evaluation.json, sequence.json, reports."""

import json
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import Choice, Recipe, read_recipe, read_sequence
from nobackfill.evaluation.scores import p_scores
from nobackfill.report.from_runs import report_runs
from nobackfill.report.pages.expected import TITLE
from nobackfill.training.expected import compare_results, expects_results
from nobackfill.training.results import search_own_gallery
from nobackfill.training.run import Run
from nobackfill.training.sequence import own_scores, sequence_p_scores

CPU = torch.device("cpu")
RECIPES = Path(__file__).parents[2] / "recipes"
GLYPHS = """
[data]
name = "glyphs"
train_classes = 20
test_classes = 5
images_per_class = 6
side = 16
shares = [0.3, 0.6, 1.0]

[tests.more]
name = "glyphs"
train_classes = 10
test_classes = 6
images_per_class = 6
side = 16
seed = 3

[model]
name = "small"
width = 4
embedding_dim = 8

[train]
epochs = 2
batch_size = 16
"""


def recipe(folder, name, text):
    path = folder / f"{name}.toml"
    path.write_text(f'extends = "frame.toml"\n{text}')
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "frame.toml").write_text(GLYPHS)
    recipe(
        folder, "old", '[train]\nstep = 0\n[expected]\nsource = "a paper"\ntrain_classes = 6\n'
        "new_new = { glyphs = 40.0, More = 50.0 }\nrecall_at_1_new_new = 30.0\n",
    )  # fmt: skip
    recipe(folder, "independent", '[old]\nrecipe = "old.toml"\n[train]\nstep = 2\n')
    for name in ("ndpp", "prototype_alignment"):
        recipe(
            folder, name, f'[method]\nname = "{name}"\n[train]\nstep = 2\n'
            '[old]\nrecipe = "old.toml"\nindependent_recipe = "independent.toml"\n[expected]\n'
            'source = "a paper"\nnew_new = { More = 61.0, glyphs = 62.0, Lost = 1.0 }\n'
            "new_old = { More = 63.0 }\np_1 = 51.5\nrecall_at_1_new_old = 20.0\n",
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def trained(place, tmp_path_factory):
    from nobackfill.training.jobs import plan_jobs
    from nobackfill.training.pipeline import train_run

    runs = tmp_path_factory.mktemp("runs")
    for name in ("ndpp", "prototype_alignment"):
        for job in plan_jobs(place / f"{name}.toml", runs / name):
            list(train_run(job.recipe, job.folder, device=CPU, resume=True))
    return runs


def rows_of(folder):
    expected = json.loads((folder / "evaluation.json").read_text())["expected"]
    assert expected["source"] == "a paper"
    return {(row["name"], row["test"]): row for row in expected["rows"]}


def test_a_run_is_compared_with_what_its_recipe_expects(trained):
    summary = json.loads((trained / "ndpp" / "evaluation.json").read_text())
    rows = rows_of(trained / "ndpp")
    more = summary["tests"]["more"]
    measured = {
        ("new/new", "More"): 100 * more["new_new"],
        ("new/new", "glyphs"): 100 * summary["new_new"],
        ("new/new", "Lost"): None,
        ("new/old", "More"): 100 * more["new_old"],
        ("P_1", ""): summary["mean"]["p_1"],
        ("Recall@1 new/old", ""): 100 * summary["recall_at_1"]["new_old"],
    }
    assert {key: row["measured"] for key, row in rows.items()} == measured
    assert rows["new/new", "More"]["expected"] == 61.0
    difference = measured["new/new", "More"] - 61.0
    assert rows["new/new", "More"]["difference"] == pytest.approx(difference)
    assert rows["new/new", "Lost"]["difference"] is None


def test_an_old_model_is_measured_on_its_own_gallery(trained):
    old = json.loads((trained / "old" / "evaluation.json").read_text())
    new = json.loads((trained / "ndpp" / "evaluation.json").read_text())
    rows = rows_of(trained / "old")
    assert rows["new/new", "glyphs"]["measured"] == pytest.approx(100 * new["old_old"])
    assert rows["new/new", "More"]["measured"] == pytest.approx(
        100 * new["tests"]["more"]["old_old"]
    )
    recall = new["recall_at_1"]["old_old"]
    assert rows["Recall@1 new/new", ""]["measured"] == pytest.approx(100 * recall)
    assert "verdict" not in old
    assert not (trained / "independent" / "evaluation.json").read_text().count('"expected"')


def test_the_table_is_printed_after_a_run(command, trained, place):
    code, out, err = command("train", place / "ndpp.toml", "-o", trained / "ndpp", "--resume")
    assert code == 0, err
    row = rows_of(trained / "ndpp")["new/old", "More"]
    (line,) = (line for line in out.splitlines() if line.strip().startswith("new/old, More"))
    measured, published, difference = line.split()[2:]
    assert (measured, published) == (f"{row['measured']:.2f}", "63.00")
    assert float(difference) == pytest.approx(row["difference"], abs=0.006)
    code, out, _ = command("train", place / "old.toml", "-o", trained / "old", "--resume")
    assert "new/new, More" in out


def test_a_report_prints_the_published_table_with_ours_beside_it(command, trained, tmp_path):
    page = tmp_path / "page.html"
    folders = [trained / "ndpp", trained / "prototype_alignment"]
    code, out, err = command("report", *folders, "-o", page)
    assert code == 0, err
    assert "new/old, published" in out
    text = page.with_suffix(".md").read_text()
    for name in ("ndpp", "prototype_alignment"):
        row = rows_of(trained / name)["new/old", "More"]
        line = next(
            line for line in text.splitlines() if line.startswith(f"| {name}") and "63.00" in line
        )
        assert f"{row['measured']:.2f}" in line
    own = rows_of(trained / "old")["new/new", "More"]
    (line,) = (line for line in text.splitlines() if line.startswith("| old") and "50.00" in line)
    assert f"{own['measured']:.2f}" in line
    facts = json.loads(page.with_suffix(".json").read_text())
    assert set(facts["expected"]) == {"old", "ndpp", "prototype_alignment"}
    single = report_runs([trained / "ndpp"], device=CPU)
    assert TITLE in [section.title for section in single.page.sections]


def test_names_of_the_papers_tests_lead_to_those_of_the_recipes():
    numbers = {"new_new": 0.5, "new_old": 0.25}
    path = RECIPES / "gldv2" / "9to30" / "ndpp.toml"
    recipe = read_recipe(path)
    results = {name: {key: value + place / 10 for key, value in numbers.items()}
               for place, name in enumerate(["", "roxford", "rparis"])}  # fmt: skip
    rows = compare_results(recipe, results, {"mean": {"p_up": 50.0, "p_comp": None}})
    by_name = {(row["name"], row["test"]): row["measured"] for row in rows}
    assert by_name["new/new", "GLDv2-test"] == pytest.approx(50)
    assert by_name["new/old", "ROxford"] == pytest.approx(35)
    assert by_name["new/new", "RParis"] == pytest.approx(70)
    assert (by_name["P_up", ""], by_name["P_comp", ""], by_name["P_1", ""]) == (50.0, None, None)


EVERY = [p for p in sorted(RECIPES.rglob("*.toml")) if p.name not in ("frame.toml", "setting.toml")]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(RECIPES)))
def test_every_expected_result_of_a_recipe_finds_a_test(path):
    for recipe in read_sequence(path):
        one = {"new_new": 0.1, "new_old": 0.1, "old_old": 0.1, "p_up": 1.0, "p_comp": 1.0,
               "p_1": 1.0, "recall_at_1": {"new_new": 0.1, "new_old": 0.1}}  # fmt: skip
        results = {name: one for name in ("", *recipe.tests)}
        rows = compare_results(recipe, results, one)
        assert all(row["measured"] is not None for row in rows)
        assert bool(rows) == expects_results(recipe)


def test_a_recipe_that_expects_only_counts_expects_no_results():
    counts = {"source": "a paper", "train_images": 5, "train_classes": 2}
    assert not expects_results(Recipe(expected=counts))
    assert expects_results(Recipe(method=Choice("ndpp"), expected={"new_new": 1.0}))


# Sequences

SEQUENCE = """
[method]
name = "ndpp"

[expected]
source = "a paper"
matrix = [[10.0], [11.0, 12.0], [13.0, 14.0, 15.0]]
ac_after_one = 1.0
am_after_one = 0.5
ac = 0.6
am = 0.7
independent = [20.0, 21.0, 22.0]
p_scores = [{ new = 3, old = 2, p_up = 50.0, p_comp = 51.0, p_1 = 52.0 }]

[[sequence]]
train.step = 0
method.name = "independent"

[[sequence]]
train.step = 1
old.independent_recipe = "second.toml"

[[sequence]]
train.step = 2
old.independent_recipe = "third.toml"
"""


def test_a_sequence_has_scores_after_each_upgrade_and_beside_its_independent_models(
    command, place, tmp_path
):
    for step, name in ((1, "second"), (2, "third")):
        recipe(place, name, f"[train]\nstep = {step}\n")
    path = recipe(place, "sequence", SEQUENCE)
    code, out, err = command("train", path, "-o", tmp_path / "all", "--json")
    assert code == 0, err
    result = json.loads((tmp_path / "all" / "sequence.json").read_text())
    assert json.loads(out)["expected"] == result["expected"]

    # AC and AM after one and after two upgrades, by loops over the matrix.
    matrix = result["matrix"]
    for after in result["after"]:
        models = after["upgrades"] + 1
        pairs = [(i, j) for i in range(models) for j in range(i)]
        entries = [matrix[i][j] for i in range(models) for j in range(i + 1)]
        compatible = sum(matrix[i][j] > matrix[j][j] for i, j in pairs)
        assert after["ac"] == pytest.approx(compatible / len(pairs))
        assert after["am"] == pytest.approx(sum(entries) / len(entries))
    assert [after["upgrades"] for after in result["after"]] == [1, 2]
    assert (result["ac"], result["am"]) == (result["after"][1]["ac"], result["after"][1]["am"])

    # The independent models, and the P-scores that compare with them.
    runs = [Run.open(tmp_path / "all" / str(number)) for number in (1, 2, 3)]
    named = [Run.open(tmp_path / name) for name in ("second", "third")]
    assert [run.recipe.old.independent for run in runs[1:]] == [str(run.folder) for run in named]
    per_test = {}
    for test in ("", "more"):
        choice = runs[0].recipe.tests["more"] if test else runs[0].recipe.data
        from nobackfill.data.registry import make_collection

        collection = make_collection(choice)
        own = [search_own_gallery(run, collection, test=test, device=CPU)["new_new"]
               for run in (runs[0], *named)]  # fmt: skip
        assert own == own_scores(runs, collection, test=test, device=CPU)
        assert own[0] == pytest.approx(result["tests"][test or "data"][0][0])
        per_test[test or "data"] = own
    means = [sum(values) / 2 for values in zip(*per_test.values(), strict=True)]
    assert result["independent"] == pytest.approx(means)
    assert result["p_scores"] == sequence_p_scores(result["tests"], per_test)

    # Beside what the recipe expects.
    rows = {row["name"]: row for row in result["expected"]["rows"]}
    assert rows["query 3 / gallery 2"]["expected"] == 14.0
    assert rows["query 3 / gallery 2"]["measured"] == pytest.approx(100 * matrix[2][1])
    assert rows["AM after one upgrade"]["measured"] == result["after"][0]["am"]
    assert rows["AC"]["measured"] == result["ac"]
    assert rows["independent 3"]["measured"] == pytest.approx(100 * means[2])
    assert "P_1 of 3 on 2" in rows
    report = report_runs([tmp_path / "all"], device=CPU)
    assert TITLE in [section.title for section in report.page.sections]


def test_p_scores_of_a_sequence_are_those_of_the_papers_table():
    """Means over three tests; M(o,o) is the independent model of the older step."""
    lines = (RECIPES.parent / "tests" / "paper_rows.jsonl").read_text().splitlines()
    table = [json.loads(line) for line in lines]
    rows = {(r["setting"], r["method"]): r for r in table if "sequential" in r["table"]}
    for method in ("BCT", "NDPP", "ODPP"):
        to_third = [rows[f"phi_{j}→phi_3", method] for j in (1, 2)]
        tests = ("RParis", "ROxford", "GLDv2")
        matrices, independent = {}, {}
        for place, test in enumerate(tests):
            first, second = (row["old_old"][place] for row in to_third)
            cross = [row["new_old"][place] for row in to_third]
            matrices[test] = [[first], [0.0, 1.0], [*cross, to_third[0]["new_new"][place]]]
            independent[test] = [first, second, to_third[0]["independent"][place]]
        found = {(s["new"], s["old"]): s for s in sequence_p_scores(matrices, independent)}
        for old, row in enumerate(to_third, start=1):
            scores = [found[3, old][key] for key in ("p_up", "p_comp", "p_1")]
            assert scores == pytest.approx(row["printed"], abs=0.011)


def test_p_scores_need_independent_models_of_both_steps_and_a_gain():
    matrices = {"data": [[0.5], [0.4, 0.6], [0.4, 0.5, 0.7]]}
    found = sequence_p_scores(matrices, {"data": [0.5, None, 0.8]})
    assert [(s["new"], s["old"]) for s in found] == [(3, 1)]
    by_hand = p_scores(0.7, 0.4, 0.5, 0.8)
    assert found[0]["p_comp"] == by_hand.comp
    assert sequence_p_scores(matrices, {"data": [0.5, 0.5, 0.5]}) == []
