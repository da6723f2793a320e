"""Every recipe can be planned, and those of the paper say the numbers of the paper."""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import read_sequence
from nobackfill.evaluation.scores import compatibility, p_scores
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.training.dry_run import count_steps
from nobackfill.training.jobs import plan_jobs
from nobackfill.training.resolve import resolve

RECIPES = Path(__file__).parents[1] / "recipes"
PARTS = ("frame.toml", "setting.toml")  # extended by recipes, and none themselves
EVERY = sorted(path for path in RECIPES.rglob("*.toml") if path.name not in PARTS)
PAPER = [path for path in EVERY if path.relative_to(RECIPES).parts[0] in ("gldv2", "inshop")]
COUNTED = {"gldv2": 81313, "inshop": 3997, "market1501": 751, "rstpreid": 3701}  # to train on
QUALITY = Path(__file__).parents[1] / "benchmarks" / "quality"

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "paper_rows.jsonl").read_text().splitlines()
]
NAMES = {"Dual-Tuning": "dual_tuning", "BT^2": "bt2", "Baseline": "prototype_alignment"}
TESTS = ("RParis", "ROxford", "GLDv2-test")  # the order of a row's three numbers
RSTPREID = {  # from texts to images; the table prints no P-scores, so its rows are not in the file
    "old": {"new_new": 45.55, "recall_at_1_new_new": 57.85},
    "independent": {"new_new": 49.78, "recall_at_1_new_new": 62.60},
    "ndpp": {
        **{"new_new": 51.19, "new_old": 47.64},
        **{"recall_at_1_new_new": 63.80, "recall_at_1_new_old": 61.20},
    },
    "odpp": {
        **{"new_new": 50.49, "new_old": 47.54},
        **{"recall_at_1_new_new": 62.75, "recall_at_1_new_old": 61.15},
    },
}


def name_of(value):
    return str(value.relative_to(RECIPES)) if isinstance(value, Path) else None


every_recipe = pytest.mark.parametrize("path", EVERY, ids=name_of)


def test_there_are_recipes():
    assert len(EVERY) > 100
    assert {path.relative_to(RECIPES).parts[0] for path in EVERY} >= {"glyphs", *COUNTED}


@every_recipe
def test_every_recipe_can_be_planned(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # not needed for that
    jobs = plan_jobs(path, Path("runs") / "x")
    assert jobs[-1].is_requested
    folders = [str(job.folder) for job in jobs]
    assert len(set(folders)) == len(folders)
    for number, job in enumerate(jobs):
        old = job.recipe.old
        assert job.recipe.method.name in METHODS
        assert (old.recipe, old.independent_recipe) == (None, None)
        if len(jobs) > 1:  # what is needed comes first; single recipes name runs that are there
            assert {old.run, old.independent} - {None} <= set(folders[:number])


@every_recipe
def test_the_old_model_sees_the_same_data_and_has_a_dimension_that_fits(path):
    jobs = {str(job.folder): job.recipe for job in plan_jobs(path, Path("runs") / "x")}
    for recipe in jobs.values():
        for place in {recipe.old.run, recipe.old.independent} & jobs.keys():
            other = jobs[place]
            assert (other.data, other.images, other.tests) == (
                recipe.data, recipe.images, recipe.tests,
            )  # fmt: skip
        if recipe.old.run in jobs and METHODS[recipe.method.name].dimension == "same":
            dims = (one.model.options["embedding_dim"] for one in (recipe, jobs[recipe.old.run]))
            assert len(set(dims)) == 1
        if recipe.old.run in jobs:
            before, step = jobs[recipe.old.run].train.step, recipe.train.step
            assert before != -1
            assert step == -1 or step > before  # -1 is the last step


@every_recipe
def test_expected_numbers_say_where_they_come_from(path):
    for recipe in read_sequence(path):
        if recipe.expected:
            assert isinstance(recipe.expected.get("source"), str)
            assert len(recipe.expected) > 1


def test_recipes_of_cores_have_no_norm_before_the_corners():
    found = [
        recipe for path in EVERY for recipe in read_sequence(path) if recipe.method.name == "cores"
    ]
    assert len(found) >= 4
    assert {recipe.model.options.get("head") for recipe in found} == {"no_norm"}


def test_a_recipe_of_the_paper_can_be_planned_without_timm_and_torchvision(
    nobackfill, monkeypatch, tmp_path
):
    for package in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, package, None)
    recipe = RECIPES / "gldv2" / "9to30" / "ndpp.toml"
    code, out, _ = nobackfill("train", recipe, "--dry-run", "--json", "-o", tmp_path / "x")
    assert code == 0
    assert [job["parameters"] for job in json.loads(out)["jobs"]][-1] == 17_552_704


def test_every_method_of_the_paper_has_a_recipe_that_anyone_can_run():
    assert {path.stem for path in (RECIPES / "glyphs").iterdir()} >= set(METHODS)


@pytest.mark.parametrize(("folder", "counts"), [("4k", [1199, 3997]), ("24k", [7318, 24393])])
def test_every_method_has_a_recipe_at_the_class_counts_of_the_paper(folder, counts):
    paths = {path.stem: path for path in (RECIPES / "han" / folder).iterdir()}
    assert paths.keys() >= set(METHODS)
    for name in METHODS:
        (recipe,) = read_sequence(paths[name])
        assert recipe.method.name == name
        assert recipe.data.options["counts"] == counts
        assert recipe.train.new_prototypes == "running"  # no pass over the training set


def expected_of(*parts):
    path = RECIPES.joinpath(*parts).with_suffix(".toml")
    return read_sequence(path)[-1].expected


def folder_of(row):
    """The folder of recipes that a table and a setting of the paper belong to."""
    table, setting = row["table"], row["setting"]
    if table.startswith("GLDv2 sequential"):
        return None
    if table.startswith("Pretrained or randomly"):
        return "gldv2", "9to30_scratch"
    if table.startswith("Ablation"):
        return "gldv2", "9to30"
    after = "_resnet50" if setting.startswith("Backbone") else ""
    return {
        "GLDv2 single step": ("gldv2", f"9to30{after}"),
        "In-shop single step": ("inshop", f"30to100{after}"),
    }[table]


def method_of(row):
    return NAMES.get(row["method"], row["method"].lower().replace("-", "_"))


def numbers(expected):
    return [expected] if isinstance(expected, float) else [expected[test] for test in TESTS]


SINGLE = [row for row in ROWS if folder_of(row)]
SEQUENTIAL = [row for row in ROWS if not folder_of(row)]


@pytest.mark.parametrize(
    "row", SINGLE, ids=lambda row: f"{'/'.join(folder_of(row))}/{method_of(row)}"
)
def test_every_row_of_the_paper_has_a_recipe_with_its_numbers(row):
    folder, method = folder_of(row), method_of(row)
    expected = expected_of(*folder, method)
    assert numbers(expected["new_new"]) == row["new_new"]
    assert numbers(expected["new_old"]) == row["new_old"]
    assert [expected[key] for key in ("p_up", "p_comp", "p_1")] == row["printed"]
    assert numbers(expected_of(*folder, "old")["new_new"]) == row["old_old"]
    assert numbers(expected_of(*folder, "independent")["new_new"]) == row["independent"]
    recipe = read_sequence(RECIPES.joinpath(*folder, f"{method}.toml"))[0]
    assert recipe.method.name == method
    wanted = "resnet50" if folder[1].endswith("resnet50") else "resnet18"
    assert recipe.model.options["architecture"].split(".")[0] == wanted
    assert recipe.model.options["pretrained"] == (not folder[1].endswith("scratch"))
    old = read_sequence(RECIPES.joinpath(*folder, "old.toml"))[0]
    assert old.model.options["architecture"].split(".")[0] == "resnet18"


def test_no_recipe_of_the_paper_says_a_number_that_no_row_has():
    told = {(*folder_of(row), method_of(row)) for row in SINGLE}
    assert len(told) == len(SINGLE)
    for path in PAPER:
        parts = path.relative_to(RECIPES).with_suffix("").parts
        says = "new_new" in read_sequence(path)[-1].expected
        parts = (*parts[:-1], parts[-1].removesuffix("_printed"))
        if parts[1] != "sequence" and parts[-1] not in ("old", "independent"):
            assert says == (parts in told)


@pytest.mark.parametrize(
    "row",
    [row for row in SINGLE if row["reproduces"]],  # of the others the paper prints other scores
    ids=lambda row: f"{row['table']}, {row['method']}",
)
def test_the_expected_p_scores_are_those_of_the_expected_numbers(row):
    folder = folder_of(row)
    new = expected_of(*folder, method_of(row))
    old, independent = (expected_of(*folder, name) for name in ("old", "independent"))
    scores = p_scores(
        numbers(new["new_new"]),
        numbers(new["new_old"]),
        numbers(old["new_new"]),
        numbers(independent["new_new"]),
    )
    assert [scores.up, scores.comp, scores.one] == pytest.approx(
        [new["p_up"], new["p_comp"], new["p_1"]], abs=0.02
    )


@pytest.mark.parametrize("row", SEQUENTIAL, ids=lambda row: f"{row['setting']} {row['method']}")
def test_every_row_of_the_sequence_is_in_its_matrix(row):
    j, i = (int(word[-1]) - 1 for word in row["setting"].split("→"))
    matrix = expected_of("gldv2", "sequence", method_of(row))["matrix"]
    assert matrix[i][i] == pytest.approx(sum(row["new_new"]) / 3, abs=1e-3)
    assert matrix[i][j] == pytest.approx(sum(row["new_old"]) / 3, abs=1e-3)
    if j == 0:
        assert matrix[0][0] == pytest.approx(sum(row["old_old"]) / 3, abs=1e-3)


GLDV2_SEQUENCES = [path for path in EVERY if path.match("gldv2/sequence/*.toml")]
GLDV2_INDEPENDENT = [path for path in GLDV2_SEQUENCES if path.stem.startswith("independent")]


@pytest.mark.parametrize("row", SEQUENTIAL, ids=lambda row: f"{row['setting']} {row['method']}")
def test_every_row_of_the_sequence_has_its_p_scores_and_independent_models(row):
    j, i = (int(word[-1]) for word in row["setting"].split("→"))
    expected = expected_of("gldv2", "sequence", method_of(row))
    (scores,) = (s for s in expected["p_scores"] if (s["new"], s["old"]) == (i, j))
    assert [scores[key] for key in ("p_up", "p_comp", "p_1")] == row["printed"]
    assert expected["independent"][i - 1] == pytest.approx(sum(row["independent"]) / 3, abs=1e-3)
    assert expected["independent"][j - 1] == pytest.approx(sum(row["old_old"]) / 3, abs=1e-3)
    name = {2: "independent_30", 3: "independent_100"}[i]
    assert numbers(expected_of("gldv2", "sequence", name)["new_new"]) == row["independent"]


def test_sequences_of_gldv2_train_independent_models_of_their_steps():
    for path in set(GLDV2_SEQUENCES) - set(GLDV2_INDEPENDENT):
        jobs = plan_jobs(path, Path("runs") / "x")
        recipes = {str(job.folder): job.recipe for job in jobs}
        for job in jobs:
            if job.recipe.old.run is not None:
                independent = recipes[str(job.recipe.old.independent)]
                assert independent.method.name == "independent"
                assert independent.train.step == job.recipe.train.step
                assert (independent.data, independent.model) == (job.recipe.data, job.recipe.model)
        assert [job.is_requested for job in jobs] == [True, False, True, False, True]


@pytest.mark.parametrize(
    "path", [p for p in GLDV2_SEQUENCES if p not in GLDV2_INDEPENDENT], ids=name_of
)
def test_the_expected_ac_and_am_are_those_of_the_expected_matrix(path):
    expected = read_sequence(path)[-1].expected
    scores = compatibility([[value / 100 for value in row] for row in expected["matrix"]])
    assert expected["ac"] == pytest.approx(scores.ac, abs=1e-4)
    assert expected["am"] == pytest.approx(scores.am, abs=2e-5)


@pytest.mark.parametrize(
    "path", [p for p in EVERY if p.relative_to(RECIPES).parts[0] in COUNTED], ids=name_of
)
def test_the_expected_classes_are_the_share_of_them_all(path):
    classes = COUNTED[path.relative_to(RECIPES).parts[0]]
    for recipe in read_sequence(path):
        data, expected = recipe.data.options, recipe.expected
        counts = data.get("counts") or [int(share * classes) for share in data["shares"]]
        assert all(one < other for one, other in pairwise(counts))
        assert counts[-1] <= classes
        if "train_classes" in expected:
            assert expected["train_classes"] == counts[recipe.train.step]
            assert expected.get("train_images", classes) >= expected["train_classes"]
        else:
            assert path.parent.name == "sequence"


TABLES = (*(f"{table}/" for table in COUNTED), "glyphs/", "han/4k/", "han/24k/")
EXACT = [path for path in EVERY if path.stem == "odpp" and name_of(path).startswith(TABLES)]
PRINTED = {"optimizer": "sgd", "pairs": "sampled", "learning_rate": 0.001}


@pytest.mark.parametrize("path", EXACT, ids=name_of)
def test_odpp_as_printed_is_beside_the_exact_one_of_each_table(path):
    """The paper: SGD, lr 0.001, 50 epochs of as many pairs as images, in batches of 1,024."""
    exact, printed = (
        [resolve(one) for one in read_sequence(file)]
        for file in (path, path.with_stem("odpp_printed"))
    )
    for one, other in zip(exact, printed, strict=True):
        assert replace(other, method=one.method) == one
        if one.method.name == "independent":
            assert other.method == one.method
            continue
        assert other.method.options == {**one.method.options, **PRINTED}
        assert (other.method.options["steps"], other.method.options["batch_size"]) == (50, 1024)
        assert other.method.options["pairs_per_epoch"] is None  # as many as training items


def test_odpp_as_printed_takes_23000_steps_before_an_epoch_of_gldv2():
    images = expected_of("gldv2", "9to30", "odpp_printed")["train_images"]
    old = OldSpace(prototypes=torch.eye(4), labels=torch.zeros(images, dtype=torch.int64))
    recipe = resolve(read_sequence(RECIPES / "gldv2" / "9to30" / "odpp_printed.toml")[0])
    method = METHODS["odpp"](old, 4, **{**recipe.method.options, "steps": 1})
    steps = int(method.perturb.counts[0]) * recipe.method.options["steps"]
    assert steps == 23_000


# Images and texts


@pytest.mark.parametrize("path", sorted((RECIPES / "rstpreid" / "50to100").iterdir()), ids=name_of)
def test_recipes_of_rstpreid_say_the_numbers_of_their_row_and_no_others(path):
    recipe = read_sequence(path)[0]
    expected = dict(recipe.expected)
    assert expected.pop("source").startswith("the paper, table ")
    images, texts = expected.pop("train_images"), expected.pop("train_texts")
    assert images == 5 * expected.pop("train_classes")  # photos of each person
    assert texts == 2 * images  # each is shown once an epoch
    assert recipe.pairs.texts == "each"
    assert expected == RSTPREID.get(path.stem.removesuffix("_printed"), {})
    steps = count_steps(texts, recipe.train)["in_all"]
    assert recipe.train.warmup_steps == steps // 10


def test_every_row_of_rstpreid_has_a_recipe():
    assert {path.stem for path in EVERY if "rstpreid" in path.parts} >= RSTPREID.keys()
    for row in RSTPREID.values():  # 2,000 texts ask
        assert all(
            row[key] * 20 == pytest.approx(round(row[key] * 20)) for key in row if "_1_" in key
        )


def mean_of(suite, way, key):
    lines = [json.loads(line) for line in (QUALITY / f"{suite}.jsonl").read_text().splitlines()]
    values = [100 * line[key] for line in lines if line["way"] == way and not line["changes"]]
    assert len(values) == 3
    return pytest.approx(sum(values) / 3, abs=0.0051)


@pytest.mark.parametrize("path", [p for p in EVERY if p.parent.name == "flickr8k"], ids=name_of)
def test_recipes_of_flickr8k_say_the_means_of_our_runs(path):
    recipe = read_sequence(path)[0]
    suite = "flickr8k-both" if path.stem.endswith("_both") else "flickr8k"
    expected = dict(recipe.expected)
    assert expected.pop("source").startswith("ours, mean of 3 seeds")
    if path.stem == "old":
        assert expected == {"new_new": mean_of(suite, "independent", "old_old")}
    else:
        keys = ("old_old", "new_old", "new_new")
        assert expected == {key: mean_of(suite, recipe.method.name, key) for key in keys}


@pytest.mark.parametrize("path", [p for p in EVERY if p.stem.endswith("_both")], ids=name_of)
def test_recipes_for_both_sides_say_so_and_change_nothing_else(path):
    both = read_sequence(path)[0]
    one = read_sequence(path.with_stem(path.stem.removesuffix("_both")))[0]
    assert both.pairs == replace(one.pairs, compatible="both", towards="image")
    assert replace(both, pairs=one.pairs, expected=one.expected) == one
