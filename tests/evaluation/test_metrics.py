import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation import relevance
from nobackfill.evaluation.metrics import retrieval
from nobackfill.evaluation.rank_metrics import average_precision
from nobackfill.ops import nearest as search
from nobackfill.ops import ranking

WAYS = [ranking.ranks_by_counting, ranking.ranks_by_sorting]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def _each_way(request, monkeypatch):
    """Runs a test with the CPU's way of ranking and with the GPU's, both on the CPU."""
    monkeypatch.setattr(ranking, "ranks_by_counting", request.param)


@pytest.mark.parametrize("columns", [1, 2, 127, 1025])
@pytest.mark.parametrize("values", [1, 3, 10**6])
def test_counted_ranks_are_those_of_a_sort(columns, values):
    generator = torch.Generator().manual_seed(columns + values)
    room = torch.full((9, columns + 15), 1e9, dtype=torch.float64)
    score = room[:, :columns]  # with a gap after each row, as blocks of scores may have
    score.copy_(torch.randint(values, score.shape, generator=generator))
    score[torch.rand(score.shape, generator=generator) < 0.2] = -torch.inf
    row, item = (
        ((score > -torch.inf) & (torch.rand(score.shape, generator=generator) < 0.3)).nonzero().T
    )
    expected = ranking.ranks_by_sorting(score, row, item)
    assert ranking.ranks_by_counting(score, row, item).equal(expected)


def random_vectors(rows, generator):
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def tied_vectors(rows, generator):
    """Along an axis, up or down: all cosines are -1, 0 or 1, exactly."""
    axes = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    length = torch.tensor([1.0, 2.0, 0.5]).double()
    axis = torch.randint(0, 6, (rows,), generator=generator)
    return axes[axis] * length[axis % 3, None]


def by_hand(query, gallery, relevant, ignored, *, at=None, area="step"):
    """The definition, one query and one gallery item at a time.

    `relevant[i][j]` and `ignored[i][j]` say what gallery item j is to query i.
    """
    average, first, number, all_ranks = [], [], [], []
    for i, q in enumerate(query.tolist()):
        cosine = [
            sum(a * b for a, b in zip(q, g, strict=True)) / math.hypot(*q) / math.hypot(*g)
            for g in gallery.tolist()
        ]
        kept = [j for j in range(len(gallery)) if not ignored[i][j]]
        ranking = sorted(kept, key=lambda j, cosine=cosine: -cosine[j])  # stable: ties in order
        ranks = [r for r, j in enumerate(ranking, start=1) if relevant[i][j]]
        total = 0.0
        for found, rank in enumerate(ranks, start=1):
            if at is not None and rank > at:
                continue
            precision = found / rank
            if area == "trapezoid":
                before = 1.0 if rank == 1 else (found - 1) / (rank - 1)
                precision = (before + precision) / 2
            total += precision
        most = len(ranks) if at is None else min(len(ranks), at)
        average.append(total / most if ranks else math.nan)
        first.append(ranks[0] if ranks and (at is None or ranks[0] <= at) else 0)
        number.append(len(ranks))
        all_ranks += ranks
    return average, first, number, all_ranks


def judgement(kind, num_query, num_gallery, generator):
    """Options of `retrieval`, and the two tables `by_hand` wants, for one way of judging."""

    def random_integers(high, rows):
        return torch.randint(0, high, (rows,), generator=generator)

    def random_table():
        return torch.rand(num_query, num_gallery, generator=generator) < 0.3

    def as_lists(table):
        return [row.nonzero().squeeze(1).tolist() for row in table]

    options = {}
    ignored = torch.zeros(num_query, num_gallery, dtype=torch.bool)
    if "lists" in kind:
        relevant = random_table()
        options["relevant"] = as_lists(relevant)
    else:
        query_labels, gallery_labels = (
            random_integers(4, num_query),
            random_integers(5, num_gallery),
        )
        options |= {"query_labels": query_labels, "gallery_labels": gallery_labels}
        relevant = query_labels[:, None] == gallery_labels
    if "ignored" in kind:
        ignored |= random_table()
        options["ignored"] = as_lists(ignored)
    if "camera" in kind:
        query_camera, gallery_camera = (
            random_integers(2, num_query),
            random_integers(2, num_gallery),
        )
        options |= {"query_camera": query_camera, "gallery_camera": gallery_camera}
        ignored |= relevant & (query_camera[:, None] == gallery_camera)
    if "self" in kind:
        ignored |= torch.eye(num_query, dtype=torch.bool)
        options["exclude_self"] = True
    return options, relevant, ignored


KINDS = [
    "labels",
    "lists",
    "labels ignored",
    "lists ignored",
    "labels camera",
    "labels self",
    "lists self",
    "labels ignored camera self",
]
SETTINGS = [
    {"at": 1},
    {"at": 4},
    {"at": 100},
    {"area": "trapezoid"},
    {"area": "trapezoid", "at": 5},
]
CASES = [(kind, {}) for kind in KINDS] + [("lists ignored", settings) for settings in SETTINGS]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
@pytest.mark.parametrize("make", [random_vectors, tied_vectors])
def test_agrees_with_the_definition_written_as_loops(kind, settings, make, monkeypatch):
    for seed, block_bytes in enumerate([1500, search.BLOCK_BYTES]):  # a few rows at a time, all
        monkeypatch.setattr(search, "BLOCK_BYTES", block_bytes)
        generator = torch.Generator().manual_seed(seed)
        rows = (9, 9) if "self" in kind else (7, 13)
        query, gallery = (make(n, generator) for n in rows)
        options, relevant, ignored = judgement(kind, *rows, generator)

        result = retrieval(query, gallery, **options, **settings)

        tables = relevant.tolist(), ignored.tolist()
        average, first, number, ranks = by_hand(query, gallery, *tables, **settings)
        expected = torch.tensor(average, dtype=torch.float64)
        torch.testing.assert_close(result.average_precision, expected, equal_nan=True)
        assert result.first_hit.tolist() == first
        assert result.num_relevant.tolist() == number
        assert result.ranks.tolist() == ranks


@pytest.mark.parametrize(
    ("ranks", "step", "trapezoid"),
    [([1, 2, 5], 0.8667, 0.85), ([3], 0.3333, 0.1667), ([1, 2], 1.0, 1.0)],
)
def test_golden_values_of_the_landmark_protocol(ranks, step, trapezoid):
    ranks, number = torch.tensor(ranks), torch.tensor([len(ranks)])
    assert average_precision(ranks, number).item() == pytest.approx(step, abs=5e-5)
    area = average_precision(ranks, number, area="trapezoid").item()
    assert area == pytest.approx(trapezoid, abs=5e-5)


@pytest.mark.usefixtures("_each_way")
def test_golden_value_with_junk_between():
    angle = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])  # junk, positive, junk, negative, positive
    gallery = torch.stack([angle.cos(), angle.sin()], dim=1)
    query = torch.tensor([[1.0, 0.0]])
    result = retrieval(query, gallery, relevant=[[1, 4]], ignored=[[0, 2]], area="trapezoid")
    assert result.mean_average_precision == pytest.approx(0.791667, abs=1e-6)
    assert result.ranks.tolist() == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_scikit_learn(dtype):
    generator = torch.Generator().manual_seed(0)
    query, gallery = (torch.randn(n, 16, generator=generator, dtype=dtype) for n in (40, 500))
    query_labels, gallery_labels = (
        torch.randint(0, 9, (n,), generator=generator) for n in (40, 500)
    )
    cosine = torch.cosine_similarity(query[:, None], gallery[None], dim=-1).numpy()
    expected = [
        average_precision_score((gallery_labels == label).numpy(), score)
        for label, score in zip(query_labels, cosine, strict=True)
    ]
    result = retrieval(query, gallery, query_labels, gallery_labels)
    np.testing.assert_allclose(result.average_precision.numpy(), expected, atol=1e-6)
    assert result.mean_average_precision == pytest.approx(np.mean(expected), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_cpu_and_gpu_code_count_the_same_ranks(seed):
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(0, 40, (5, 60), generator=generator).float()  # many are equal
    score[torch.rand(5, 60, generator=generator) < 0.2] = -torch.inf
    row, item = ((torch.rand(5, 60, generator=generator) < 0.3) & score.isfinite()).nonzero().T
    counted, sorted_whole = (way(score, row, item).tolist() for way in WAYS)
    assert counted == sorted_whole
    one_by_one = [
        1 + sum(s > score[i, j] or (s == score[i, j] and at < j) for at, s in enumerate(score[i]))
        for i, j in zip(row, item, strict=True)
    ]
    assert counted == one_by_one


class Elsewhere(torch.Tensor):
    """Says that it is on another device, and is not."""

    device = property(lambda self: torch.device("meta"))
    __torch_function__ = torch._C._disabled_torch_function_impl  # what is made of it is not


@pytest.mark.parametrize("longest", [None, 2, 50])
def test_other_devices_are_told_how_long_rows_are(monkeypatch, longest):
    score = torch.tensor([[0.1, 0.9, -math.inf], [0.5, 0.4, 0.5], [0.0, 0.0, 1.0]])
    told = []

    def on_gpu(score, row, item, start, longest):
        assert start.tolist() == [0, 1, 1, 3]
        told.append(longest)
        whole = ranking.ranks_by_sorting(score.as_subclass(torch.Tensor), row, item)
        return ranking.sort_within_rows(whole, row, 3)

    monkeypatch.setattr(ranking, "send_to_device", lambda device, indices: indices)
    monkeypatch.setattr(ranking, "ranks_on_gpu", on_gpu)
    row, item = torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2, 1, 2])
    ranks, number = ranking.sorted_ranks(score.as_subclass(Elsewhere), row, item, longest=longest)
    assert told == [longest]
    assert (ranks.tolist(), number.tolist()) == ([2, 1, 3], [1, 0, 2])


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_all_rows_are_counted_if_all_items_are_ranked(rows):
    """Rows without items, too, at the end as well."""
    score = torch.arange(4.0).expand(rows, 4)
    row, item = torch.tensor([0, 0]), torch.tensor([3, 0])
    for complete in (False, True):
        ranks, number = ranking.sorted_ranks(score, row, item, complete=complete)
        assert ranks.tolist() == [1, 4]
        assert number.tolist() == [2] + [0] * (rows - 1)


@pytest.mark.parametrize("options", [{}, {"ignored": [[0], [], []]}, {"exclude_self": True}])
def test_ranks_are_counted_with_what_is_known(monkeypatch, options):
    """All is ranked only where nothing is taken out; the longest list is that of a block."""
    told = []

    def watched(*rest, **known):
        told.append(known)
        return ranking.sorted_ranks(*rest, **known)

    monkeypatch.setattr("nobackfill.evaluation.metrics.sorted_ranks", watched)
    monkeypatch.setattr(search, "BLOCK_BYTES", 1)  # one query at a time
    retrieval(torch.eye(3), torch.eye(3), [0, 1, 5], [0, 1, 1], **options)
    assert told == [{"complete": not options, "longest": longest} for longest in (1, 2, 0)]


def test_only_what_goes_to_a_gpu_is_not_waited_for():
    waits = []

    class Watched(torch.Tensor):
        def to(self, device, *, non_blocking):
            waits.append(not non_blocking)
            return self

    for device in ("cpu", "meta"):
        ranking.send_to_device(torch.device(device), torch.arange(3).as_subclass(Watched))
    assert waits == [True, False]


@pytest.mark.parametrize("queries", [1, 50])
def test_lists_by_label_are_the_same_on_every_device(monkeypatch, queries):
    """Also of labels that cannot be written to."""
    generator = np.random.default_rng(0)
    query, gallery = generator.integers(-3, 9, queries), generator.integers(0, 7, 200)
    gallery.flags.writeable = False
    expected = relevance.lists_by_label(query, gallery)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *rest, **options: self)  # to "meta", here
    found = relevance.lists_by_label(query, gallery, torch.device("meta"))
    for name in ("start", "stop", "items"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    for some in ((0, queries), (queries // 2, queries)):
        for one, other in zip(found.pairs(*some), expected.pairs(*some), strict=True):
            assert one.equal(other)


def test_an_item_of_negative_cosine_counts():
    gallery = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, 0.0]])
    result = retrieval(torch.tensor([[1.0, 0.0]]), gallery, relevant=[[1]])
    assert result.mean_average_precision == 0.5


def test_length_does_not_matter():
    query, gallery = torch.tensor([[3.0, 0.0]]), torch.tensor([[9.0, 9.0], [0.1, 0.0]])
    assert retrieval(query, gallery, relevant=[[1]]).first_hit.tolist() == [1]


def test_without_anything_relevant_there_is_no_value():
    x = torch.eye(2)
    result = retrieval(x, x, [0, 5], [0, 1])
    assert result.average_precision[0] == 1
    assert result.average_precision[1].isnan()
    assert result.first_hit.tolist() == [1, 0]
    assert result.mean_average_precision == 1
    assert result.recall(1) == 1
    nothing = retrieval(x, x, [5, 5], [0, 1])
    assert math.isnan(nothing.mean_average_precision)
    assert math.isnan(nothing.recall(1))
    assert nothing.ranks.tolist() == []


def test_nothing_is_left_of_a_gallery_that_is_ignored():
    result = retrieval(torch.eye(2), torch.eye(2), [0, 0], [0, 0], ignored=[[0, 1], []])
    assert result.num_relevant.tolist() == [0, 2]


def test_recall_is_the_share_of_queries_with_a_hit():
    x = torch.eye(4)
    relevant = [[0], [0], [3], []]  # at ranks 1, 2, 4; the last has none
    result = retrieval(x, x, relevant=relevant, at=2)
    assert result.first_hit.tolist() == [1, 2, 0, 0]
    assert [result.recall(k) for k in (1, 2, 3, 4)] == [1 / 3, 2 / 3, 2 / 3, 1]
    with pytest.raises(ConfigError, match="k is 0"):
        result.recall(0)


def test_offsets_find_the_ranks_of_each_query():
    x = torch.eye(3)
    result = retrieval(x, x, relevant=[[1, 2], [], [0]])
    parts = [result.ranks[a:b].tolist() for a, b in result.offsets.unfold(0, 2, 1)]
    assert parts == [[2, 3], [], [2]]


def test_an_item_listed_twice_is_one_item():
    x = torch.eye(3)
    result = retrieval(x, x, relevant=[[2, 0, 2, 0], [], []])
    assert result.ranks.tolist() == [1, 3]


@pytest.mark.parametrize("container", [list, np.array, torch.tensor])
def test_labels_and_lists_come_in_any_container(container):
    x = torch.eye(3)
    by_labels = retrieval(x, x, container([2**40, 1, 1]), container([2**40 + 1, 1, 1]))
    by_lists = retrieval(x, x, relevant=[[], container([1, 2]), container([1, 2])])
    assert by_labels.ranks.tolist() == by_lists.ranks.tolist() == [1, 3, 1, 3]


def test_half_precision_and_gradients_are_welcome():
    x = torch.eye(3, dtype=torch.bfloat16, requires_grad=True)
    assert retrieval(x, x.half(), [0, 1, 2], [0, 1, 2]).mean_average_precision == 1


def test_the_result_cannot_be_changed():
    result = retrieval(torch.eye(2), torch.eye(2), [0, 1], [0, 1])
    with pytest.raises(AttributeError):
        result.ranks = None


def spoilt(value):
    vectors = torch.ones(4, 2)
    vectors[2] = value
    return vectors


@pytest.mark.parametrize("lengths", [(0.2, 1.0), (1.0, 5.0), (0.2, 5.0)])
@pytest.mark.parametrize("side", ["query", "gallery"])
def test_vectors_of_any_length_are_compared_by_their_directions(lengths, side):
    """Whether all are as long as 1 or shorter, or all as long or longer."""
    generator = torch.Generator().manual_seed(0)
    vectors = {
        name: F.normalize(torch.randn(rows, 5, generator=generator), dim=1)
        for name, rows in (("query", 9), ("gallery", 40))
    }
    labels = torch.arange(9) % 4, torch.arange(40) % 4
    expected = retrieval(vectors["query"], vectors["gallery"], *labels)
    scale = torch.linspace(*lengths, len(vectors[side]))[:, None]
    vectors[side] = vectors[side] * scale
    found = retrieval(vectors["query"], vectors["gallery"], *labels)
    assert found.ranks.equal(expected.ranks)


LABELS = {"query_labels": [0, 1], "gallery_labels": [0, 1, 0]}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"query": torch.ones(0, 2)}, DataError, "query has 0 rows"),
        ({"gallery": torch.ones(0, 2)}, DataError, "gallery has 0 rows"),
        ({"gallery": torch.ones(3, 5)}, DataError, "query has 2 and the gallery 5"),
        ({"query": spoilt(torch.nan), "query_labels": [0] * 4}, DataError, "query .* row 2"),
        ({"gallery": spoilt(torch.inf), "gallery_labels": [0] * 4}, DataError, "gallery .* row 2"),
        (
            {"query": spoilt(0.0), "query_labels": [0] * 4},
            DataError,
            "query .* zero, the first being row 2",
        ),
        (
            {"gallery": spoilt(0.0), "gallery_labels": [0] * 4},
            DataError,
            "gallery .* zero, the first being row 2",
        ),
        ({"query_labels": [0]}, DataError, "`query_labels` .* 1 values and 2 vectors"),
        ({"gallery_labels": [0]}, DataError, "`gallery_labels` .* 1 values and 3 vectors"),
        ({"gallery_labels": None}, DataError, "only `query_labels` is given"),
        ({"query_labels": None}, DataError, "only `gallery_labels` is given"),
        ({"query_labels": None, "gallery_labels": None}, DataError, "but got neither"),
        ({"relevant": [[0], [1]]}, DataError, "but got both"),
        ({"query_labels": ["a", "b"]}, DataError, "must be of one kind, but start with"),
        ({"query_labels": torch.tensor([0.0, 1.0])}, DataError, "flat list of integers"),
        ({"query_labels": torch.tensor([[0, 1]])}, DataError, r"shape \(1, 2\)"),
        ({"ignored": [[0]]}, DataError, "`ignored` .* 1 lists and 2 queries"),
        ({"ignored": [[0], [1, 3]]}, DataError, "0 to 2, but the list of query 1 holds 3"),
        ({"ignored": [[0], [-1]]}, DataError, "the list of query 1 holds -1"),
        ({"query_camera": [0, 1]}, DataError, "only `query_camera` is given"),
        ({"gallery_camera": [0, 1, 1]}, DataError, "only `gallery_camera` is given"),
        ({"query_camera": [0], "gallery_camera": [0, 1, 1]}, DataError, "`query_camera`"),
        ({"exclude_self": True}, DataError, "2 queries and 3 gallery items"),
        ({"at": 0}, ConfigError, "it is 0. Pass 1 or more"),
        ({"area": "steps"}, ConfigError, "one of step, trapezoid, but it is 'steps'"),
    ],
)
def test_says_what_is_wrong(options, error, message):
    given = {"query": torch.ones(2, 2), "gallery": torch.ones(3, 2), **LABELS, **options}
    with pytest.raises(error, match=message):
        retrieval(**given)


@pytest.mark.parametrize("relevant", [[[0]], [[0], [5]]])
def test_says_what_is_wrong_with_lists(relevant):
    with pytest.raises(DataError, match="`relevant` must hold"):
        retrieval(torch.ones(2, 2), torch.ones(3, 2), relevant=relevant)


def test_cameras_need_labels():
    with pytest.raises(DataError, match="Put those items into `ignored`"):
        retrieval(
            torch.ones(1, 2), torch.ones(1, 2), relevant=[[0]], query_camera=[0], gallery_camera=[0]
        )
