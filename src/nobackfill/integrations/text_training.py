"""Fine-tunes a sentence-transformers model on pairs of texts, step by step, and can be resumed."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nobackfill.core.atomic_files import replacing
from nobackfill.core.seeding import seeded
from nobackfill.data.pair_batches import shuffled_batches
from nobackfill.data.texts import TextPair
from nobackfill.errors import ConfigError, DataError, TrainingDiverged
from nobackfill.integrations.replaced_method import replaced_method

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

STATE = "state.pt"
SAVE_EVERY = 60.0  # seconds between two states


@dataclass(frozen=True)
class TextTraining:
    """Settings of a fine-tuning.

    Attributes:
        epochs: Number of passes over the pairs.
        batch_size: Number of pairs of a batch.
        learning_rate: Highest learning rate of AdamW.
        warmup: Share of the steps in which the rate rises from zero; then it falls to zero.
        weight_decay: Weight decay of AdamW.
        bfloat16: Whether the model computes in bfloat16; the loss is always in float32.
        seed: Random seed of the order of the pairs and of dropout.
    """

    epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 4e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    bfloat16: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float]] = {
            "epochs": (1, 10**6),
            "batch_size": (2, 10**6),
            "learning_rate": (0.0, 10.0),
            "warmup": (0.0, 1.0),
            "weight_decay": (0.0, 1.0),
            "seed": (0, 2**40),
        }
        for name, (lowest, highest) in limits.items():
            if not lowest <= (value := getattr(self, name)) <= highest:
                raise ConfigError(
                    f"`{name}` is {value}, but must be from {lowest:g} to {highest:g}."
                )


@dataclass(frozen=True)
class Progress:
    """A finished step of a training.

    Attributes:
        step: Number of finished steps.
        steps: Number of all steps.
        pairs: Number of pairs of the batch.
        terms: Terms of the loss of the batch, by name.
    """

    step: int
    steps: int
    pairs: int
    terms: dict[str, float]


Watch = Callable[[Progress], None]  # receives each step; may raise to stop the training


def fine_tune(
    model: "SentenceTransformer",
    loss: nn.Module,
    pairs: Sequence[TextPair],
    settings: TextTraining,
    *,
    folder: Path | None = None,
    save_every: float = SAVE_EVERY,
    seconds: float | None = None,
    watch: Watch | None = None,
) -> bool:
    """Trains a model and its loss in place; returns whether all steps are done.

    All randomness of a step follows from the seed and the number of the step. A training that
    continues from its saved state therefore ends with the weights of an uninterrupted one: equal
    ones on a CPU with the same number of threads.

    Args:
        model: Model to train.
        loss: Loss of sentence-transformers, called with the features of the queries, documents and
            negatives. Its own parameters are trained too.
        pairs: Pairs to train on, all with the same number of negatives.
        settings: Settings.
        folder: Folder of the state, which is continued if there is one; None saves nothing.
        save_every: Seconds between two saved states.
        seconds: Training stops after this time, and may be continued; None for no limit.
        watch: Receives the progress after each step.
    """
    batches = planned_batches(pairs, settings)
    if not batches:
        raise DataError(
            f"Training requires two pairs with different texts, but there are {len(pairs)}. Add "
            f"some."
        )
    both = nn.ModuleDict({"model": model, "loss": loss}).train()
    optimizer = torch.optim.AdamW(
        [p for p in both.parameters() if p.requires_grad],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    first = load_state(folder, both, optimizer) if folder is not None else 0
    started = saved = monotonic()
    for step in range(first, len(batches)):
        # Train on a batch.
        rate = settings.learning_rate * rate_share(step, len(batches), settings.warmup)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = [pairs[row] for row in batches[step]]
        optimizer.zero_grad()
        with seeded(2**22 * settings.seed + step), half_precision(model, settings.bfloat16):
            terms = backward(loss, features_of(model, batch))
        if not math.isfinite(sum(terms.values())):
            raise TrainingDiverged(
                f"The loss became {sum(terms.values())} in step {step + 1}. Choose a lower "
                f"learning rate than {settings.learning_rate:g}."
            )
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimizer.step()
        if watch is not None:
            watch(Progress(step + 1, len(batches), len(batch), terms))
        # Save the state, and stop at the time limit.
        is_late = seconds is not None and monotonic() - started >= seconds
        is_last = step + 1 == len(batches)
        if folder is not None and (is_late or is_last or monotonic() - saved >= save_every):
            save_state(folder, both, optimizer, step + 1)
            saved = monotonic()
        if is_late and not is_last:
            return False
    model.eval()
    return True


def backward(loss: nn.Module, features: list[dict[str, Any]]) -> dict[str, float]:
    """Computes the gradient of a loss; returns its terms by name."""
    value = loss(features, None)
    terms = value if isinstance(value, dict) else {"loss": value}
    sum(terms.values()).backward()
    return {name: term.item() for name, term in terms.items()}


def planned_batches(pairs: Sequence[TextPair], settings: TextTraining) -> list[list[int]]:
    """Returns the rows of all batches of all epochs; see `shuffled_batches`."""
    keys = [
        [("query", pair.query), ("document", pair.document), ("group", pair.group or pair.document)]
        for pair in pairs
    ]
    return [
        batch
        for epoch in range(settings.epochs)
        for batch in shuffled_batches(keys, settings.batch_size, seed=settings.seed, epoch=epoch)
    ]


def rate_share(step: int, steps: int, warmup: float) -> float:
    """Returns the share of the learning rate in a step: a linear rise, then a linear fall to zero.

    Example:
        >>> [round(rate_share(step, 10, 0.2), 3) for step in (0, 1, 2, 9)]
        [0.5, 1.0, 1.0, 0.125]
    """
    rising = math.ceil(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return (steps - step) / max(steps - rising, 1)


def features_of(model: "SentenceTransformer", batch: Sequence[TextPair]) -> list[dict[str, Any]]:
    """Returns the tokens of the queries, the documents, and each column of negatives."""
    columns = [[pair.query for pair in batch], [pair.document for pair in batch]]
    columns += [list(texts) for texts in zip(*(pair.negatives for pair in batch), strict=True)]
    read = getattr(model, "preprocess", None) or model.tokenize  # `preprocess` since version 6
    return [
        {
            key: value.to(model.device) if isinstance(value, Tensor) else value
            for key, value in read(texts).items()
        }
        for texts in columns
    ]


@contextmanager
def half_precision(model: nn.Module, enabled: bool = True) -> Iterator[None]:
    """Computes in bfloat16 inside the model if `enabled`; its embeddings are float32."""
    if not enabled:
        yield
        return
    forward = model.forward

    def lower(*arguments: Any, **options: Any) -> Any:
        device = next(model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16):
            output = forward(*arguments, **options)
        return output | {"sentence_embedding": output["sentence_embedding"].float()}

    with replaced_method(model, "forward", lower):
        yield


def save_state(folder: Path, both: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Writes the weights and the optimizer after a step, atomically."""
    state = {"step": step, "both": both.state_dict(), "optimizer": optimizer.state_dict()}
    try:
        with replacing(folder / STATE) as unfinished:
            torch.save(state, unfinished)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"Could not write the state after step {step} to {folder}: {error}. The last complete "
            f"state is intact. Free some disk space and continue with --resume."
        ) from None


def load_state(folder: Path, both: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restores the last saved state; returns the number of finished steps."""
    path = folder / STATE
    if not path.exists():
        return 0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        both.load_state_dict(state["both"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])
    except Exception as error:
        raise DataError(
            f"Could not read {path} ({type(error).__name__}). Remove it and run again with "
            f"--resume: the training starts over."
        ) from None
