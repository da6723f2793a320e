import torch
import torch.nn.functional as F

from nobackfill.ops import cells
from nobackfill.ops.cells import near_in_cells
from nobackfill.ops.nearest import nearest


def clustered(number=600, clusters=12, dim=16):
    draw = torch.Generator().manual_seed(0)
    centers = torch.randn(clusters, dim, generator=draw) * 3
    rows = centers.repeat_interleave(number // clusters, 0)
    return F.normalize(rows + torch.randn(number, dim, generator=draw), dim=1)


def test_one_cell_finds_the_nearest_rows_that_are_no_duplicates():
    units = clustered()
    neighbor, (left, right) = near_in_cells(units, 7, 0.95, cells=1)
    cosine = (units @ units.T).fill_diagonal_(-1)
    row, other = (cosine > 0.95).triu(1).nonzero().unbind(1)
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == list(
        zip(row.tolist(), other.tolist(), strict=True)
    )
    expected = cosine.masked_fill(cosine > 0.95, -1).topk(7).indices
    assert (neighbor.long() == expected).all()


def test_a_row_alone_in_its_cell_is_its_own_neighbour():
    units = torch.eye(4)
    neighbor, (left, _) = near_in_cells(units, 3, 0.9, cells=4)
    assert neighbor.tolist() == [[row] * 3 for row in range(4)]
    assert len(left) == 0


def test_cells_find_most_neighbours_and_near_duplicates_of_clustered_rows():
    units = clustered()
    units[300:310] = F.normalize(units[0:10] + 0.01 * units[10:20], dim=1)
    neighbor, (left, right) = near_in_cells(units, 5, 0.99)
    expected, _ = nearest(units, units, 5, exclude_self=True)
    shared = [
        len(set(one) & set(other)) / 5
        for one, other in zip(neighbor.tolist(), expected.tolist(), strict=True)
    ]
    assert sum(shared) / len(shared) > 0.5  # 24 cells: neighbours beyond a border are missed
    pairs = set(zip(left.tolist(), right.tolist(), strict=True))
    assert len(pairs & {(row, row + 300) for row in range(10)}) >= 9


def test_large_cells_are_compared_in_parts_with_the_same_result(monkeypatch):
    units = clustered()
    whole = near_in_cells(units, 5, 0.9, cells=3)
    monkeypatch.setattr(cells, "ROWS_AT_A_TIME", 17)
    parts = near_in_cells(units, 5, 0.9, cells=3)
    assert (whole[0] == parts[0]).float().mean() > 0.99  # products may differ in the last bit
    assert {*zip(*map(torch.Tensor.tolist, whole[1]), strict=True)} == {
        *zip(*map(torch.Tensor.tolist, parts[1]), strict=True)
    }
