"""How crowded the old space is: counted by hand."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nobackfill.head.assess import crowding as diagnosis
from nobackfill.head.assess.crowding import (
    CROWDED,
    Crowding,
    advice,
    crowding_of,
    pairs_above,
)

ANGLES = torch.tensor([0.0, 0.1, 0.9, 2.5])  # of four classes on a circle


@pytest.fixture
def items():
    """Two items of each class, to either side of its middle, of different lengths."""
    angle = torch.cat([ANGLES - 0.01, ANGLES + 0.01])
    vectors = torch.stack([angle.cos(), angle.sin()], dim=1)
    return vectors * torch.arange(1, 9)[:, None], torch.arange(8) % 4


NAMES = np.array(["ant", "bee", "cat", "dog"])


def cosine(one, other):
    return float(torch.cos(ANGLES[one] - ANGLES[other]))


def test_crowding_counts_class_means(items):
    found = crowding_of(*items, NAMES)
    pairs = [pair for pair in combinations(range(4), 2) if cosine(*pair) > CROWDED]
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    assert (found.classes, found.near, found.pairs) == (4, 0.75, 3)
    nearest = [max(cosine(one, other) for other in range(4) if other != one) for one in range(4)]
    assert found.nearest == pytest.approx(sum(nearest) / 4, abs=1e-5)


def test_the_closest_pairs_come_first_each_once(items):
    closest = crowding_of(*items, NAMES).closest
    assert [pair[:2] for pair in closest] == [("ant", "bee"), ("bee", "cat"), ("cat", "dog")]
    expected = [cosine(0, 1), cosine(1, 2), cosine(2, 3)]
    assert [pair[2] for pair in closest] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_pairs_are_counted_alike_in_blocks(monkeypatch, rows):
    monkeypatch.setattr(diagnosis, "rows_per_block", lambda bytes_per_row: rows)
    means = F.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    by_hand = sum(float(one @ other) > 0.3 for one, other in combinations(means, 2))
    assert pairs_above(means, 0.3) == by_hand > 0


@pytest.mark.parametrize("classes", [40, 4999, 5000, 24_393, 100_000])
def test_advice_says_what_the_paper_says_and_no_more(classes):
    """It recommends by few or many classes and time; no number of classes decides."""
    said = advice(Crowding(classes, 0.25, 1234, 0.5, [("ant", "bee", 0.987)]))
    assert said.startswith(f"{classes:,} classes")
    same = advice(Crowding(7, 0.25, 1234, 0.5, [("ant", "bee", 0.987)]))
    assert said.removeprefix(f"{classes:,}") == same.removeprefix("7")
    assert "ndpp for few classes or little time, odpp for many classes and time to spare" in said
    assert (
        "ndpp leads with 3,997 classes, odpp with 81,313, and with 24,393 one or the other" in said
    )
    assert "25 %" in said
    assert "1,234 pairs" in said
    assert "ant and bee (0.99)" in said


def test_who_leads_in_the_papers_tables_is_who_the_advice_names():
    lines = (Path(__file__).parents[2] / "paper_rows.jsonl").read_text().splitlines()
    p_1 = {}
    for row in map(json.loads, lines):
        by_classes = {
            "In-shop single step": 3997,
            "GLDv2 single step": 24_393,
        }.get(row["table"], 81_313 if row["setting"] == "phi_1→phi_3" else None)
        if by_classes and row["method"] in ("NDPP", "ODPP"):
            p_1.setdefault((by_classes, row["setting"]), {})[row["method"]] = row["printed"][2]
    leaders = {}
    for (classes, _), scores in p_1.items():
        leaders.setdefault(classes, set()).add(max(scores, key=scores.get))
    assert leaders == {3997: {"NDPP"}, 24_393: {"NDPP", "ODPP"}, 81_313: {"ODPP"}}
