"""What planted mistakes slipped through: evaluation, jobs, plans and sequences."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.core.config.toml import change_tables
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import draw_means, paired_interval
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.methods.prototypes import class_means
from nobackfill.training.dry_run import plan_job
from nobackfill.training.jobs import plan_jobs


def unit_rows(rows, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(values, dim=-1)


# How sure a mean is


def test_drawn_means_are_the_formula_written_as_loops():
    """Classes of unequal size: a mean over queries is another than a mean over classes."""
    sums, sizes = np.array([3.0, 1.0, -2.0]), np.array([5.0, 1.0, 2.0])
    drawn, _ = draw_means(sums, sizes, 6, 0)
    generator = np.random.default_rng(0)
    for mean in drawn:
        times = generator.multinomial(3, np.full(3, 1 / 3))
        total = sum(w * s for w, s in zip(times, sums, strict=True))
        queries = sum(w * n for w, n in zip(times, sizes, strict=True))
        assert mean == pytest.approx(total / queries)


def test_a_query_that_is_left_out_takes_its_own_class_along_and_no_other():
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 5)
    values = generator.normal(0, 0.2, 12)[groups] + generator.normal(0, 0.05, 60)
    some = generator.random(60) < 0.8
    holes = np.where(some, values, np.nan)
    assert paired_interval(holes, groups) == paired_interval(values[some], groups[some])


# What is ranked, and what a summary says of it


def test_queries_without_anything_ignored_rank_the_whole_gallery():
    query, gallery = unit_rows(4, 3, 0), unit_rows(7, 3, 1)
    result = nb.retrieval(
        query, gallery, [0, 1, 0, 1], [0, 1, 0, 1, 0, 1, 0], ignored=[[1], [2, 3, 3], [], []]
    )
    assert result.num_ranked.tolist() == [6, 5, 7, 7]
    assert 0 < result.in_order < 1


def labelled(seed, noise, classes=20, per_class=8, **more):
    labels = np.arange(classes * per_class) % classes
    values = unit_rows(classes, 6, 0)[labels] + noise * unit_rows(len(labels), 6, seed)
    return nb.Vectors(range(len(labels)), values, labels, **more)


def test_every_number_of_a_summary_is_what_its_name_says():
    result = evaluate(labelled(1, 1.2), labelled(2, 1.0), independent=labelled(3, 0.8))
    for name, metrics in result.summary()["metrics"].items():
        pair = result.pairs[name]
        assert metrics == {
            "map": pair.mean_average_precision,
            "map_at_100": pair.precision_at(100),
            "recall_at_1": pair.recall(1),
            "recall_at_5": pair.recall(5),
            "recall_at_10": pair.recall(10),
            "ndcg_at_10": pair.ndcg(10),
            "in_order": pair.in_order,
        }
        assert len({metrics[key] for key in ("map", "map_at_100", "ndcg_at_10")}) == 3


def test_queries_that_share_relevant_items_are_drawn_together():
    """A ground truth that lists the items of each class gives the intervals of the labels."""
    old, new = labelled(1, 1.2), labelled(2, 0.5)
    names = [str(item) for item in range(160)]
    truth = GroundTruth({item: names[int(item) % 20 :: 20] for item in names})
    result = evaluate(old, new, ground_truth=truth, seed=3)
    assert result.differences == evaluate(old, new, seed=3).differences
    assert result.verdict == "compatible"


def test_queries_of_separate_items_are_drawn_alone():
    old, new = labelled(1, 1.2), labelled(2, 0.5)
    columns = {"is_query": np.arange(160) < 80, "is_gallery": np.arange(160) >= 80}
    old, new = (
        nb.Vectors(file.ids, file.vectors, file.labels, columns=columns) for file in (old, new)
    )
    truth = GroundTruth({str(query): [str(query + 80)] for query in range(80)})
    result = evaluate(old, new, ground_truth=truth, seed=3)
    difference = result.new_old.average_precision - result.old_old.average_precision
    expected = paired_interval(difference.numpy(), np.arange(80), seed=3)
    assert result.differences["new_old - old_old"] == expected


# What a recipe asks to be trained

DATA = "[data]\nname = 'glyphs'\ntrain_classes = 10\n[model]\nname = 'small'\n"


@pytest.fixture
def recipe(tmp_path):
    """Of a model that needs an old and an independent one."""
    for name in ("old", "alone"):
        (tmp_path / f"{name}.toml").write_text(DATA)
    needs = "[old]\nrecipe = 'old.toml'\nindependent_recipe = 'alone.toml'\n"
    (tmp_path / "new.toml").write_text(DATA + "[method]\nname = 'bt2'\n" + needs)
    return tmp_path / "new.toml"


def test_a_file_of_old_vectors_takes_the_place_of_an_old_recipe(recipe):
    jobs = plan_jobs(recipe, Path("runs/new"), ["old.vectors=mine.npz"])
    assert [job.folder.name for job in jobs] == ["alone", "new"]
    old = jobs[-1].recipe.old
    assert (old.vectors, old.run, old.independent) == ("mine.npz", None, "runs/alone")


def test_an_independent_run_that_is_there_takes_the_place_of_its_recipe(recipe):
    jobs = plan_jobs(recipe, Path("runs/new"), ["old.independent = 'mine'"])
    assert [job.folder.name for job in jobs] == ["old", "new"]
    old = jobs[-1].recipe.old
    assert (old.run, old.independent) == ("runs/old", "mine")


def test_changes_leave_the_tables_that_were_given_as_they_were():
    """Models of a sequence share what is below them in the file."""
    tables = {"tests": {"more": {"seed": 5}}}
    changed = change_tables(tables, ["tests.more.seed=9"])
    assert (changed, tables) == ({"tests": {"more": {"seed": 9}}}, {"tests": {"more": {"seed": 5}}})


def test_the_steps_are_those_of_what_is_found_where_that_differs_from_what_is_expected(tmp_path):
    (tmp_path / "old.toml").write_text(DATA + "[train]\nbatch_size = 8\n")
    (job,) = plan_jobs(tmp_path / "old.toml", tmp_path / "runs/old")
    expecting = replace(job.recipe, expected={"train_images": 10_000, "train_classes": 99})
    plain, told = plan_job(job), plan_job(replace(job, recipe=expecting))
    assert len(told.differences) == 2
    assert (told.steps, told.parameters) == (plain.steps, plain.parameters)


# Prototypes


def test_a_last_class_without_vectors_is_told_as_empty():
    with pytest.raises(DataError, match="1 of 3 classes have no items, .* class 2"):
        class_means(unit_rows(4, 3, 0), [0, 1, 1, 0], 3)
