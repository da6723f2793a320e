"""Ranks as a GPU counts them, against a sort."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.ops import ranking

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def unit(rows, dim, seed):
    vectors = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    return F.normalize(vectors, dim=1).to(DEVICE)


@pytest.mark.parametrize("longest", [None, 3, 4, 900])
def test_ranks_by_the_kernel_are_those_of_a_sort(monkeypatch, longest):
    """Rows have 3, 0, 1 and 2 items, and none at the end."""
    score = unit(5, 40, 0)
    row = torch.tensor([0, 0, 0, 2, 3, 3], device=DEVICE)
    item = torch.tensor([7, 2, 30, 0, 39, 5], device=DEVICE)
    start = ranking.row_starts(row, 5)
    expected = ranking.sort_within_rows(ranking.ranks_by_sorting(score, row, item), row, 40)
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    monkeypatch.setattr(ranking, "ranks_by_sorting", None)
    assert ranking.ranks_on_gpu(score, row, item, start, longest).tolist() == expected.tolist()


def test_rows_of_too_many_items_are_sorted(monkeypatch):
    score = unit(2, 40, 0)
    row, item = torch.tensor([0, 1], device=DEVICE), torch.tensor([7, 2], device=DEVICE)
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    asked = []
    original = ranking.ranks_by_sorting
    monkeypatch.setattr(
        ranking, "ranks_by_sorting", lambda *rest: asked.append(True) or original(*rest)
    )
    start = torch.arange(3, device=DEVICE)
    found = [ranking.ranks_on_gpu(score, row, item, start, longest) for longest in (1024, 1025)]
    assert len(asked) == 1
    assert found[0].tolist() == found[1].tolist()
    nothing = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert ranking.ranks_on_gpu(score, nothing, nothing, start * 0).equal(nothing)


@pytest.mark.parametrize(("most", "sorts"), [(1, True), (2, False)])
def test_how_many_items_the_longest_row_has_is_found_out(monkeypatch, most, sorts):
    asked = []
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    monkeypatch.setattr(ranking, "ranks_by_sorting", lambda *rest: asked.append(True) or rest[1])
    monkeypatch.setattr("nobackfill.ops.kernels.ranks.MOST", most)
    row, item = (torch.tensor(some, device=DEVICE) for some in ([0, 2, 2], [7, 2, 9]))
    ranking.ranks_on_gpu(unit(3, 40, 0), row, item, ranking.row_starts(row, 3))
    assert bool(asked) is sorts
