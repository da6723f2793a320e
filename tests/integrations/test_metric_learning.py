import math

import pytest
import torch

pytest.importorskip("pytorch_metric_learning")
from pytorch_metric_learning.losses import (
    ContrastiveLoss,
    CrossBatchMemory,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
    SupConLoss,
    TripletMarginLoss,
)
from pytorch_metric_learning.miners import BatchHardMiner, MultiSimilarityMiner

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.metric_learning import CompatibleLoss, OldReferences

CLASSES, DIM, ITEMS = 5, 4, 40
OLD = torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(0))
OLD_LABELS = torch.arange(ITEMS) % CLASSES


def make_method(name="ndpp", **options):
    prototypes = nb.class_means(OLD, OLD_LABELS, CLASSES)
    old = nb.OldSpace(prototypes=prototypes, embeddings=OLD, labels=OLD_LABELS)
    torch.manual_seed(1)
    return nb.METHODS[name](old, CLASSES, **options)


def batch(seed=2):
    generator = torch.Generator().manual_seed(seed)
    items = torch.randperm(ITEMS, generator=generator)[:12]
    return torch.randn(12, DIM, generator=generator), OLD_LABELS[items], items


@pytest.mark.parametrize(
    "base",
    [
        TripletMarginLoss(),
        MultiSimilarityLoss(),
        SupConLoss(),
        ProxyAnchorLoss(CLASSES, DIM),
    ],
    ids=lambda base: type(base).__name__,
)
def test_a_base_loss_replaces_the_classification(base):
    new, labels, _ = batch()
    pairs = None if isinstance(base, ProxyAnchorLoss) else MultiSimilarityMiner()(new, labels)
    expected = base(new, labels, pairs) + make_method()(new, labels)["compatibility"]
    loss = CompatibleLoss(base, make_method())
    torch.testing.assert_close(loss(new, labels, pairs), expected)
    assert loss.terms["classification"] == 0
    assert loss.terms["base"] == base(new, labels, pairs)
    if isinstance(base, ProxyAnchorLoss):
        assert any(parameter is base.proxies for parameter in loss.parameters())


def test_without_a_base_loss_the_method_classifies():
    new, labels, _ = batch()
    expected = sum(make_method()(new, labels).values())
    assert CompatibleLoss(None, make_method())(new, labels) == expected


def test_indices_of_a_miner_and_references_reach_the_base_loss():
    base = ContrastiveLoss()
    new, labels, _ = batch()
    loss = CompatibleLoss(base, make_method())
    term = make_method()(new, labels)["compatibility"]
    hardest = BatchHardMiner()(new, labels)
    torch.testing.assert_close(loss(new, labels, hardest) - term, base(new, labels, hardest))
    assert base(new, labels, hardest) != base(new, labels)
    references = {"ref_emb": OLD, "ref_labels": OLD_LABELS}
    torch.testing.assert_close(
        loss(new, labels, **references) - term, base(new, labels, **references)
    )


def test_items_reach_the_method():
    new, labels, items = batch()
    loss = CompatibleLoss(TripletMarginLoss(), make_method("mimic"))
    expected = (
        TripletMarginLoss()(new, labels) + make_method("mimic")(new, labels, items=items)["mimicry"]
    )
    torch.testing.assert_close(loss(new, labels, items=items), expected)


def test_cross_batch_memory_is_a_base_loss_and_learns():
    memory = CrossBatchMemory(ContrastiveLoss(), DIM, memory_size=24, miner=MultiSimilarityMiner())
    loss = CompatibleLoss(memory, make_method("odpp"))
    model = torch.nn.Linear(6, DIM)
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.05)
    inputs = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(3))
    inputs += 3 * torch.eye(6)[OLD_LABELS]
    values = []
    for epoch in range(15):
        loss.start_epoch(epoch, 15, lambda: (model(inputs), OLD_LABELS))
        for rows in torch.arange(ITEMS).split(10):
            optimizer.zero_grad()
            value = loss(model(inputs[rows]), OLD_LABELS[rows])
            value.backward()
            optimizer.step()
        values.append(value.item())
    assert memory.has_been_filled
    assert values[-1] < 0.8 * values[0]


def test_a_memory_of_old_vectors_is_the_loss_on_what_it_draws():
    new, labels, _ = batch()
    memory = OldReferences(SupConLoss(), OLD, OLD_LABELS, positives=2, negatives=7, weight=0.5)
    torch.manual_seed(4)
    rows = memory.draw(labels)
    torch.manual_seed(4)
    value = memory(new, labels)
    old, of = memory.vectors[rows], memory.labels[rows]
    total = 0.0
    for e, y in zip(new.double(), labels.tolist(), strict=True):
        cosines = [float(e @ f / (e.norm() * f.norm())) / 0.1 for f in old.double()]
        log_sum = math.log(sum(math.exp(c) for c in cosines))
        positives = [c for c, z in zip(cosines, of.tolist(), strict=True) if z == y]
        total -= sum(c - log_sum for c in positives) / len(positives)
    assert value.item() == pytest.approx(0.5 * total / len(new), rel=1e-4)


def test_it_draws_vectors_of_the_own_classes_then_of_all():
    labels = torch.tensor([3, 0, 3, 99])
    memory = OldReferences(SupConLoss(), OLD, OLD_LABELS, positives=3, negatives=10)
    own = {row: [] for row in range(3)}
    for _ in range(200):
        rows = memory.draw(labels)
        assert len(rows) == 9 + 10  # label 99 has no old vectors
        assert memory.labels[rows[:9]].tolist() == [3, 0, 3] * 3
        assert len(set(rows[9:].tolist())) == 10
        for place, row in enumerate(rows[:9].tolist()):
            own[place % 3].append(row)
    for place, label in enumerate((3, 0, 3)):  # each vector of a class is drawn
        assert set(own[place]) == set((memory.labels == label).nonzero().flatten().tolist())
    everything = OldReferences(SupConLoss(), OLD, OLD_LABELS, positives=0)
    assert sorted(everything.draw(labels).tolist()) == list(range(ITEMS))


def test_vectors_keep_their_labels_and_are_not_saved():
    memory = OldReferences(SupConLoss(), OLD, OLD_LABELS)
    pairs = {(*v.tolist(), y) for v, y in zip(memory.vectors, memory.labels.tolist(), strict=True)}
    assert pairs == {(*v.tolist(), y) for v, y in zip(OLD, OLD_LABELS.tolist(), strict=True)}
    assert not memory.state_dict()


def test_a_miner_sees_new_against_old():
    new, labels, _ = batch()
    seen = []

    def miner(embeddings, labels, ref_emb, ref_labels):
        seen.append(ref_emb)
        return MultiSimilarityMiner()(embeddings, labels, ref_emb, ref_labels)

    memory = OldReferences(MultiSimilarityLoss(), OLD, OLD_LABELS, negatives=99, miner=miner)
    torch.manual_seed(7)
    value = memory(new.requires_grad_(), labels)
    pairs = MultiSimilarityMiner()(new, labels, seen[0], memory.labels[torch.cat([
        (memory.vectors == vector).all(dim=1).nonzero()[0] for vector in seen[0]])])  # fmt: skip
    old_labels = torch.stack(
        [memory.labels[(memory.vectors == vector).all(dim=1)][0] for vector in seen[0]]
    )
    expected = MultiSimilarityLoss()(new, labels, pairs, ref_emb=seen[0], ref_labels=old_labels)
    assert value == expected
    value.backward()
    assert new.grad.abs().sum() > 0


def test_wrong_arguments_are_errors():
    with pytest.raises(DataError, match="40 vectors and 39 labels"):
        OldReferences(SupConLoss(), OLD, OLD_LABELS[1:])
    with pytest.raises(ConfigError, match="are both 0"):
        OldReferences(SupConLoss(), OLD, OLD_LABELS, positives=0, negatives=0)
