"""The scripts of benchmarks/ that make vectors and worlds, and the pages made of their lines."""

import importlib.util
import json
import sys
from math import nan
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill_bench import SUITES
from nobackfill_bench.quality.page import render as render_quality
from nobackfill_bench.results_log import read_lines
from nobackfill_bench.speed.page import render as render_speed
from nobackfill_bench.speed.script_sections import flops_of_an_epoch

pytestmark = pytest.mark.slow  # runs whole scripts

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name):
    sys.path.insert(0, str(BENCHMARKS))  # where they find each other
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(BENCHMARKS))
    return module


render, nulls, flops = load("render"), load("null_upgrades"), load("flops")
crowding = load("crowding_gains")


def test_verdicts_are_counted_by_kind():
    page = render.render_nulls(
        [
            {"kind": "noise", "upgrades": 4, "verdicts": {"keep": 3, "go": 1}, "mean_gain": -0.1},
            {"kind": "same", "upgrades": 2, "verdicts": {"keep": 2}, "mean_gain": 0.015},
        ]
    )
    assert "|  | upgrades | go | keep | mean gain of the chosen |" in page
    assert "| `noise` | 4 | 1 | 3 | -10.00 |" in page
    assert "| `same` | 2 | 0 | 2 | +1.50 |" in page
    assert render.render_nulls([]) == []


def test_kills_are_told_as_they_were():
    kills = [{"after_epochs": one} for one in (7, 0, 11)]
    said = render.kills(
        [{"kills": []}, {"kills": kills, "killed_while_training": 2, "identical": 3}]
    )[0]
    assert "at 3 random moments, 2 of them before it had ended (after 0 to 11 of 12 epochs)" in said
    assert "3 of 3 came to the weights of the unbroken run" in said


def test_the_page_of_checks_has_what_was_run(monkeypatch, tmp_path):
    monkeypatch.setattr(render, "HERE", tmp_path)
    assert render.read("kills") == []
    assert "##" not in render.render_checks()
    line = {"kind": "noise", "upgrades": 1, "verdicts": {"keep": 1}, "mean_gain": 0.0}
    (tmp_path / "null_upgrades.jsonl").write_text(json.dumps(line) + "\n")
    assert render.read("null_upgrades") == [line]
    assert "## Verdicts where there is nothing to gain" in render.render_checks()
    assert "## Killed and resumed" not in render.render_checks()


SMALL = SimpleNamespace(
    device="cpu", backbone="small", side=16, batch=8, classes=50, images=800, dim=16
)


def test_operations_are_counted_two_for_each_multiplication():
    plain, ndpp = (flops.count(name, SMALL) for name in ("independent", "ndpp"))
    product = 2 * 8 * 50 * 16  # of a batch with all classes: forward, and twice backward
    assert plain["terms"] == 3 * product
    assert ndpp["terms"] == plain["terms"] + 2 * product  # old prototypes have no gradient
    assert (plain["start"], plain["passes"]) == (0, False)
    assert (ndpp["start"], ndpp["passes"]) == (2 * 50 * 50 * 16, True)
    assert 2 < plain["image"] / plain["forward"] <= 3


def test_an_epoch_is_its_steps_its_start_and_its_pass():
    line = {"images": 800, "batch": 8, "image": 30, "forward": 10, "terms": 16, "start": 7}
    assert flops_of_an_epoch(line | {"passes": False}) == 800 * 30 + 100 * 16 + 7
    assert flops_of_an_epoch(line | {"passes": True}) == 800 * 40 + 100 * 16 + 7


def test_the_lines_that_are_there_can_be_rendered(tmp_path):
    for page in (render.render_checks(), render_speed(BENCHMARKS, tmp_path)):
        assert page.startswith("# ")
        assert page.count("\n|") > 3


def test_every_script_has_its_section_of_the_page_of_speed(tmp_path):
    page = render_speed(BENCHMARKS, tmp_path)
    for script in ("step_time", "flops", "throughput", "streaming", "head_size"):
        assert f"\n    python benchmarks/{script}.py" in page


def test_the_results_that_are_there_can_be_rendered(tmp_path):
    folder = BENCHMARKS / "quality"
    found = {name: read_lines(folder / f"{name}.jsonl") for name in SUITES}
    assert {path.stem for path in folder.glob("*.jsonl")} <= set(SUITES)
    page = render_quality(found, tmp_path)
    for name, lines in found.items():
        assert all(line["suite"] == name for line in lines)
        main = [line for line in lines if not line["changes"] and ":" not in line["way"]]
        assert (f"(`{name}`)" in page) == (bool(main) and SUITES[name].has_section)


def test_place_in_class_counts_those_before():
    labels = np.array([7, 8, 7, 7, 2, 8, 7])
    by_hand = [sum(labels[:i] == labels[i]) for i in range(7)]
    assert load("omniglot_vectors").place_in_class(labels).tolist() == by_hand


def test_every_caption_has_its_image_its_place_and_its_split(monkeypatch, tmp_path):
    stub = ModuleType("sentence_transformers")  # slow to import, and not asked for texts here
    stub.SentenceTransformer = None
    monkeypatch.setitem(sys.modules, "sentence_transformers", stub)
    texts, images = tmp_path / "Flickr8k_text", tmp_path / "Flicker8k_Dataset"
    texts.mkdir()
    images.mkdir()
    lists = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}
    for name, listed in lists.items():
        (texts / f"Flickr_8k.{name}Images.txt").write_text("\n".join(listed) + "\n")
    names = [name for listed in lists.values() for name in listed]
    lines = [f"{name}#{place}\t{name} {place}" for name in names for place in range(5)]
    (texts / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    for name in names:
        (images / name).write_bytes(b"")
    found, columns = load("caption_vectors").captions(tmp_path)
    assert found == [f"{name} {place}" for name in names for place in range(5)]
    assert columns["image"].tolist() == [name for name in names for _ in range(5)]
    assert columns["caption"].tolist() == list(range(5)) * 4
    splits = {"a.jpg": "train", "b.jpg": "train", "c.jpg": "unused", "d.jpg": "validation"}
    assert columns["split"].tolist() == [splits[name] for name in columns["image"].tolist()]


def own_spread(vectors):
    """How far vectors are from the mean of their class, on average."""
    values, labels = vectors.vectors, torch.from_numpy(vectors.labels)
    return torch.stack(
        [
            (values[labels == c] - values[labels == c].mean(dim=0)).norm(dim=1).mean()
            for c in range(60)
        ]
    ).mean()


@pytest.mark.parametrize("kind", nulls.KINDS)
def test_a_world_has_the_same_items_on_both_sides(kind):
    old, new = nulls.world(kind, 3, nulls.EVEN)
    assert old.ids.tolist() == new.ids.tolist()
    assert old.labels.tolist() == new.labels.tolist()
    assert np.bincount(old.labels).tolist() == [8] * 60
    again = nulls.world(kind, 3, nulls.EVEN)
    assert torch.equal(new.vectors, again[1].vectors)
    assert not torch.equal(new.vectors, nulls.world(kind, 4, nulls.EVEN)[1].vectors)
    assert torch.equal(old.vectors, new.vectors) == (kind == "same")


@pytest.mark.parametrize(
    ("kind", "share"),
    [("redraw", 1.0), ("rotated", 1.0), ("same", 1.0), ("even", nulls.EVEN), ("better", 0.5)],
)
def test_a_new_model_has_the_noise_that_its_kind_says(kind, share):
    old, new = nulls.world(kind, 0, nulls.EVEN)
    assert own_spread(new) / own_spread(old) == pytest.approx(share, rel=0.05)


def test_shuffled_labels_say_nothing_of_better_vectors():
    for side in nulls.world("shuffled", 0, nulls.EVEN):
        overall = (side.vectors - side.vectors.mean(dim=0)).norm(dim=1).mean()
        assert own_spread(side) > 0.9 * overall


@pytest.fixture(scope="module")
def searched():
    """Vectors of 6 classes: two queries and three gallery items of each; one class has none."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 5)
    vectors = generator.normal(size=(6, 8))[labels] + generator.normal(size=(30, 8))
    asks = (np.arange(30) % 5 < 2) & (labels != 4)
    return nb.Vectors(
        [str(number) for number in range(30)],
        torch.from_numpy(vectors).float(),
        labels,
        columns={"is_query": asks, "is_gallery": np.arange(30) % 5 >= 2},
    )


def test_gains_by_crowding_are_of_the_queries_of_each_class(searched):
    found = crowding.by_class(searched, searched)
    unit = F.normalize(searched.vectors, dim=1).double()
    stored = np.flatnonzero(searched.columns["is_gallery"])
    for label in range(6):
        scores = []
        for row in np.flatnonzero(searched.columns["is_query"] & (searched.labels == label)):
            order = (-(unit[stored] @ unit[row])).argsort().numpy()
            hits = searched.labels[stored[order]] == label
            places = np.flatnonzero(hits) + 1
            scores.append(np.mean([(n + 1) / place for n, place in enumerate(places)]))
        assert found[label] == pytest.approx(100 * np.mean(scores) if scores else nan, nan_ok=True)


def test_crowding_is_the_cosine_to_the_nearest_other_class(searched):
    unit = F.normalize(searched.vectors, dim=1)
    means = F.normalize(torch.stack([unit[5 * n : 5 * n + 5].mean(dim=0) for n in range(6)]), dim=1)
    nearest = [max(float(means[a] @ means[b]) for b in range(6) if b != a) for a in range(6)]
    assert crowding.cosine_to_nearest(searched) == pytest.approx(nearest, abs=1e-6)


def test_the_slope_over_crowding_is_that_of_least_squares():
    generator = np.random.default_rng(1)
    nearest = generator.uniform(0.4, 0.9, 4000)
    gains = 3.0 * nearest + generator.normal(size=4000)
    gains[0] = nan
    steepness, half = crowding.slope(nearest, gains)
    assert steepness == pytest.approx(0.1 * np.polyfit(nearest[1:], gains[1:], 1)[0])
    error = 1 / (np.sqrt(3999) * nearest.std())  # of a noise of 1
    assert half == pytest.approx(0.196 * error, rel=0.05)


def test_the_interval_of_a_group_is_over_its_classes():
    mean, half = crowding.mean_and_half(np.array([1.0, 2.0, nan, 6.0]))
    assert mean == 3.0
    assert half == pytest.approx(1.96 * np.sqrt(7.0) / np.sqrt(3))
