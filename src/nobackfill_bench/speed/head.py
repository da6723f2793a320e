"""Steps per second of fitting a head, compared with a straightforward training loop."""

from collections.abc import Sequence
from functools import partial
from time import monotonic

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from nobackfill.core.seeding import seeded
from nobackfill.head.examples import Examples, shuffle_by_class
from nobackfill.head.fitting import Learner
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule import FitConfig, Round
from nobackfill_bench.speed.case import Case, Kind, Pair, Suite, Work

ITEMS, NEW_DIM, OLD_DIM, CLASSES, BATCH = 20_000, 512, 256, 1_000, 512
METHOD = "cross_supcon"
TARGET = 3.0
ENDLESS = 1_000_000  # epochs; the schedule never ends


def cases(kind: Kind) -> Sequence[Case]:
    """Returns the case of one epoch."""
    return [epoch_of(ITEMS, CLASSES, NEW_DIM, OLD_DIM, BATCH, kind)]


def epoch_of(items: int, classes: int, new_dim: int, old_dim: int, batch: int, kind: Kind) -> Case:
    """Returns the case of one epoch over all items."""
    hidden = 1024
    weights = new_dim * old_dim + hidden * (new_dim + old_dim)
    return Case(
        f"an epoch by `{METHOD}`",
        {"items": items, "new": new_dim, "old": old_dim, "batch": batch},
        "DataLoader, `.to(device)`, AdamW and `loss.item()` in each step",
        partial(_make, items, classes, new_dim, old_dim, batch),
        counts="peer/ours",
        target=TARGET if kind == "cuda" else None,
        operations=6.0 * items * weights,
        bytes=4.0 * items * (new_dim + old_dim),
        steps=-(-items // batch),
    )


def _make(
    items: int, classes: int, new_dim: int, old_dim: int, batch: int, device: torch.device
) -> Pair:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(items) % classes
    new = torch.randn(classes, new_dim, generator=generator)[labels]
    new = new + torch.randn(items, new_dim, generator=generator)
    old = torch.randn(classes, old_dim, generator=generator)[labels]
    old = old + torch.randn(items, old_dim, generator=generator)
    order = shuffle_by_class(labels, 1, generator)
    examples = Examples(new.to(device), old.to(device), labels.to(device))
    config = FitConfig(method=METHOD, epochs=ENDLESS, batch_size=batch)
    learner = _learner(examples, config, device)
    an_epoch = Round(0, False, order.split(batch))
    naive = _naive_epoch(_learner(examples, config, device), new, labels, config, device)
    return Pair(lambda: learner.train(an_epoch, 0), naive)


def _learner(examples: Examples, config: FitConfig, device: torch.device) -> Learner:
    with seeded(0):
        network = HeadNetwork(examples.new.shape[1], examples.old.shape[1]).to(device)
    return Learner(network, examples, config, begun=monotonic())


def _naive_epoch(
    learner: Learner, new: Tensor, labels: Tensor, config: FitConfig, device: torch.device
) -> Work:
    """Trains the same network and method, with each batch copied from the CPU."""
    network, method = learner.network, learner.method
    parameters = [*network.parameters(), *method.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay
    )
    stored = TensorDataset(new, labels, torch.arange(len(new)))
    loader = DataLoader(stored, batch_size=config.batch_size, shuffle=True)

    def epoch() -> None:
        network.train()
        losses = []
        for vectors, classes, items in loader:
            vectors, classes, items = (tensor.to(device) for tensor in (vectors, classes, items))
            terms = method(network(vectors), classes, items=items)
            weight = {"classification": config.classification}
            loss = torch.stack(
                [weight.get(name, 1.0) * tensor for name, tensor in terms.items()]
            ).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    return epoch


HEAD = Suite(
    "Fitting a head",
    (
        f"{ITEMS:,} items, {NEW_DIM} → {OLD_DIM} dimensions, {CLASSES:,} classes, batches of "
        f"{BATCH}: one epoch without its start. Counted: 6 operations per weight and item for "
        "forward and backward; each vector is read once. At this size a GPU finishes a step long "
        "before Python launches the next, so launches, not arithmetic, set the lower bound. The "
        "peer is therefore a straightforward training loop. Our vectors are on the device from the "
        "start.",
    ),
    cases,
)
