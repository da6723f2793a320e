from math import exp, log, sqrt

import pytest
import torch
import torch.nn.functional as F

from nobackfill.errors import DataError
from nobackfill.methods.advbct import AdvBCT, boundary_loss, class_regions, elastic_radius
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Classes 0 and 2 are old and have a region, class 1 has a single item, class 3 is new.
item_classes = torch.tensor([2, 0, 3, 1, 0, 2, 3, 2, 0, 2, 0, 0])
EMBEDDINGS = 0.3 * random(12, 4, seed=0) + 2 * F.one_hot(item_classes, 4)
ITEMS = torch.tensor([1, 3, 0, 2, 10, 5])
LABELS, NEW = item_classes[ITEMS], random(6, 4, seed=1)


def make(labels=item_classes, known_classes=3, **options):
    torch.manual_seed(0)
    old = OldSpace(embeddings=EMBEDDINGS, labels=labels, known_classes=known_classes)
    return AdvBCT(old, 4, **options).double()


def start(method, epoch=0, epochs=30):
    method.start_epoch(epoch, epochs, new_prototypes=pytest.fail, new_embeddings=pytest.fail)
    return method


def length(vector):
    return sqrt(sum(x * x for x in vector.tolist()))


def region_by_hand(vectors):
    """Centre and radius of one class, one item at a time."""
    units = [v / length(v) for v in vectors]
    centre = sum(units) / len(units)
    distances = sorted(length(u - centre) for u in units)
    if len(units) >= 4:
        low, high = distances[int(len(units) / 4)], distances[int(3 * len(units) / 4)]
        distances = [d for d in distances if d <= high + 1.5 * (high - low)]
    return centre, max(distances)


def boundary_by_hand(method, new, labels, weight=1.0, target_radius=1.0):
    beyond = []
    for e, y in zip(new, labels.tolist(), strict=True):
        rows = EMBEDDINGS[item_classes == y]
        if len(rows) > 1 and y < 3:
            centre, r = region_by_hand(rows)
            delta = abs(r - target_radius) / (1 + exp(-method.elastic[y].item()))
            beyond.append(
                length(e / length(e) - centre) - (r + delta if r < target_radius else r - delta)
            )
    beyond = [b for b in beyond if b > 0]
    return weight * sum(beyond) / max(len(beyond), 1)


def told_apart_by_hand(method, rows, answer):
    """How surprised the discriminator is, one unit at a time; BatchNorm sees the batch alone."""
    first, norm, _, last = method.discriminator
    hidden = []
    for w, b, g, shift in zip(first.weight, first.bias, norm.weight, norm.bias, strict=True):
        x = torch.stack([row @ w + b for row in rows])
        mean = sum(x) / len(x)
        spread = sum((one - mean) ** 2 for one in x) / len(x)
        hidden.append(((x - mean) / (spread + 1e-5).sqrt() * g + shift).clamp(min=0))
    total = 0.0
    for h in torch.stack(hidden, dim=1):
        z = [h @ w + b for w, b in zip(last.weight, last.bias, strict=True)]
        total -= z[answer] - (z[0].exp() + z[1].exp()).log()
    return total / len(rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": 0.3},
        {"adversarial_weight": 0.4},
        {"target_radius": 0.05},
        {"target_radius": 0.3, "hidden": 7, "weight": 2.0},
    ],
)
@pytest.mark.parametrize("epoch", [0, 12, 29])
def test_every_term_is_its_formula_written_as_loops(options, epoch):
    method = start(make(**options), epoch)
    assert method.discriminator[0].out_features == options.get("hidden", 100)
    terms = method(NEW, LABELS, items=ITEMS)
    assert list(terms) == ["classification", "boundary", "adversarial"]
    bounds = {key: options[key] for key in ("weight", "target_radius") if key in options}
    by_hand = boundary_by_hand(method, NEW, LABELS, **bounds)
    assert terms["boundary"].item() == pytest.approx(by_hand, abs=1e-10)
    told = told_apart_by_hand(method, NEW, 0) + told_apart_by_hand(method, EMBEDDINGS[ITEMS], 1)
    by_hand = options.get("adversarial_weight", 1.0) * (31 - epoch) / 30 * told
    torch.testing.assert_close(terms["adversarial"], by_hand, rtol=0, atol=1e-10)
    logits = [[(e @ w).item() for w in method.classifier.weight] for e in NEW]
    costs = [log(sum(exp(c) for c in z)) - z[y] for z, y in zip(logits, LABELS, strict=True)]
    assert terms["classification"].item() == pytest.approx(sum(costs) / 6, abs=1e-10)


@pytest.mark.parametrize("sizes", [(0, 1, 3, 4), (4, 0, 9, 5), (12, 1, 7, 0), (30, 6, 0, 2)])
def test_regions_are_their_formula_written_as_loops(sizes):
    labels = torch.tensor([c for c, size in enumerate(sizes) for _ in range(size)])
    vectors = 0.1 * random(len(labels), 3, seed=2) + random(4, 3, seed=3)[labels]
    last = labels.bincount(minlength=4).cumsum(0) - 1
    vectors[last] *= -0.5  # an outlier in each class
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(4))
    centres, radii, counts = class_regions(vectors[order], labels[order], 4)
    assert counts.tolist() == list(sizes)
    for c, size in enumerate(sizes):
        rows = vectors[labels == c]
        centre, radius = region_by_hand(rows) if size else (torch.zeros(3).double(), 0.0)
        torch.testing.assert_close(centres[c], centre, rtol=0, atol=1e-10)
        assert radii[c].item() == pytest.approx(radius, abs=1e-10)
        if size:
            farthest = (F.normalize(rows, dim=-1) - centre).norm(dim=-1).max().item()
            assert (radii[c].item() < farthest - 0.1) == (size > 4)  # one outlier was left out


@pytest.mark.parametrize("size", range(4, 13))
def test_what_is_an_outlier_is_found_at_the_quartiles(size):
    for seed in range(20):
        vectors = random(size, 3, seed=seed) ** 3 / 4 + 1
        radius = class_regions(vectors, torch.zeros(size, dtype=torch.int64), 1)[1].item()
        assert radius == pytest.approx(region_by_hand(vectors)[1], abs=1e-10)


def test_items_that_are_all_equally_far_are_all_kept():
    cross = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert class_regions(cross, torch.tensor([0, 0, 0, 0]), 1)[1].item() == 1


@pytest.mark.parametrize("target", [0.2, 1.0, 1.4])
def test_a_radius_moves_towards_the_common_one_and_not_beyond(target):
    radius, elastic = (
        torch.tensor([0.1, 0.6, 1.2]).double(),
        torch.tensor([-9.0, 0.3, 9.0]).double(),
    )
    moved = elastic_radius(radius, elastic, target)
    for r, w, m in zip(radius.tolist(), elastic.tolist(), moved.tolist(), strict=True):
        delta = abs(r - target) / (1 + exp(-w))
        assert m == pytest.approx(r + delta if r < target else r - delta, abs=1e-10)
        assert min(r, target) <= m <= max(r, target)


def test_inside_the_boundary_nothing_is_paid():
    new = EMBEDDINGS[ITEMS].clone().requires_grad_()
    cost = start(make())(new, LABELS, items=ITEMS)["boundary"]
    cost.backward()
    assert cost.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


def test_the_mean_is_over_those_beyond_their_boundary():
    new, centre = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, -3.0], [1.0, 0.0]]), torch.zeros(4, 2)
    radius, bounded = torch.tensor([0.5, 1.5, 0.9, 0.0]), torch.tensor([True, True, True, False])
    assert boundary_loss(new, centre, radius, bounded).item() == pytest.approx((0.5 + 0.1) / 2)


def test_beyond_it_the_embedding_is_drawn_in_and_the_boundary_out():
    method, new = start(make()), NEW.clone().requires_grad_()
    before = method(new, LABELS, items=ITEMS)["boundary"]
    before.backward()
    after = boundary_by_hand(method, NEW - 0.1 * new.grad, LABELS)
    assert after < before
    assert (method.elastic.grad <= 0).all()  # all radii are below the target: larger shares
    assert method.elastic.grad[[0, 2]].all()


def test_shares_start_at_random_between_minus_one_and_one():
    elastic = AdvBCT(OldSpace(embeddings=EMBEDDINGS), 500).elastic
    assert elastic.min() < -0.9
    assert elastic.max() > 0.9
    assert elastic.abs().max() <= 1


def test_new_classes_and_classes_of_one_item_have_no_boundary_but_the_adversary_sees_them():
    method = start(make())
    assert method.bounded.tolist() == [True, False, True, False]
    rows = torch.tensor([1, 3])
    terms = method(NEW[rows], LABELS[rows], items=ITEMS[rows])
    assert terms["boundary"].item() == 0
    assert terms["adversarial"] > 0
    assert make(known_classes=None).bounded.tolist() == [True, False, True, True]
    assert make(known_classes=1).bounded.tolist() == [True, False, False, False]


@pytest.mark.parametrize(("epoch", "batches"), [(0, 0), (0, 1), (3, 0), (3, 1), (3, 2), (29, 5)])
def test_the_reversed_gradient_grows_from_batch_to_batch(epoch, batches):
    method = start(make(), 7)
    method(NEW, LABELS, items=ITEMS)  # of another epoch
    start(method, epoch)
    for _ in range(batches):
        method(NEW, LABELS, items=ITEMS)
    progress = (epoch + min(1, batches * 6 / 12)) / 30
    strength = 2 / (1 + exp(-10 * progress)) - 1
    new, same = NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    method(new, LABELS, items=ITEMS)["adversarial"].backward()
    (pull,) = torch.autograd.grad(told_apart_by_hand(method, same, 0), same)
    expected = -strength * (31 - epoch) / 30 * pull
    torch.testing.assert_close(new.grad, expected, rtol=0, atol=1e-10)


def test_a_step_deceives_the_discriminator_and_its_own_step_finds_out():
    method, new = start(make(), 15), NEW.clone().requires_grad_()
    method(new, LABELS, items=ITEMS)["adversarial"].backward()
    surprise = told_apart_by_hand(method, NEW, 0)
    assert told_apart_by_hand(method, NEW - 0.1 * new.grad, 0) > surprise
    old = EMBEDDINGS[ITEMS]
    surprise = surprise + told_apart_by_hand(method, old, 1)
    torch.optim.SGD(method.discriminator.parameters(), lr=0.1).step()
    assert told_apart_by_hand(method, NEW, 0) + told_apart_by_hand(method, old, 1) < surprise


def test_old_vectors_of_the_same_view_meet_the_discriminator_but_make_no_region():
    method, old = start(make()), random(6, 4, seed=5).requires_grad_()
    terms, stored = method(NEW, LABELS, items=ITEMS, old=old), method(NEW, LABELS, items=ITEMS)
    told = told_apart_by_hand(method, NEW, 0) + told_apart_by_hand(method, old, 1)
    torch.testing.assert_close(terms["adversarial"], 31 / 30 * told, rtol=0, atol=1e-10)
    assert terms["boundary"] == stored["boundary"]
    terms["adversarial"].backward()
    assert old.grad is None


def seen(method):
    """The method after batches of all items."""
    for items in torch.arange(12).split(4):
        method(random(len(items), 4, seed=6), item_classes[items], items=items)
    return method


def test_classes_learned_from_the_batches_lead_to_the_same_regions_in_the_second_epoch():
    told, learned = seen(start(make())), seen(start(make(labels=None)))
    first = class_regions(EMBEDDINGS[:4], item_classes[:4], 4)[0]
    torch.testing.assert_close(learned.centre, first)  # of what the first batch told
    terms = [start(method, 1)(NEW, LABELS, items=ITEMS) for method in (told, learned)]
    assert terms[0] == terms[1]
    for part in ("centre", "radius", "bounded"):
        assert torch.equal(getattr(told, part), getattr(learned, part))


@pytest.mark.parametrize("labels", [item_classes, None])
def test_goes_on_from_its_saved_state(labels):
    one, other = make(labels), make(labels)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    for epoch in range(3):
        start(one, epoch)
        sum(seen(one)(NEW, LABELS, items=ITEMS).values()).backward()
        optimizer.step()
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.radius, one.radius)
    for epoch in range(3, 5):
        for method in (one, other):
            start(method, epoch)
        for _ in range(2):
            assert one(NEW, LABELS, items=ITEMS) == other(NEW, LABELS, items=ITEMS)


def test_without_labels_it_must_know_the_items():
    with pytest.raises(DataError, match="Pass `items=`"):
        start(make(labels=None))(NEW, LABELS, old=EMBEDDINGS[ITEMS])
    terms = start(make())(NEW, LABELS, old=EMBEDDINGS[ITEMS])
    assert terms["boundary"].item() > 0


def test_an_old_model_that_knew_no_class_bounds_none():
    assert not make(known_classes=0).bounded.any()


def test_looking_is_not_training():
    method = start(make().eval(), 1)
    method(NEW, LABELS, items=ITEMS)
    assert method.reversal == start(make(), 1).reversal
