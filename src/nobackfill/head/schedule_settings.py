"""What a head is fitted by: a method that will do, how long, how fast."""

from dataclasses import dataclass
from math import inf

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast a head is fitted.

    Attributes:
        epochs: At most.
        batch_size: How many items make a step.
        learning_rate: Of AdamW; falls to 0 along half a cosine.
        weight_decay: Likewise.
        classification: Weight of the method's classification term.
        together: How many items of a class come together into a batch.
        patience: Rounds without a better one after which to stop.
        seconds: What it all may take; None for no limit. The learning rate falls in that time, so
            what comes out depends on how fast the machine is.
        seed: Of all that is random.
    """

    epochs: int = 30
    batch_size: int = 512
    learning_rate: float = 3e-4
    weight_decay: float = 1e-2
    classification: float = 0.0
    together: int = 1
    patience: int = 6
    seconds: float | None = None
    seed: int = 0


def check_method(name: str) -> None:
    """Refuses a method that needs more of the old model than its vectors, or fixes a dimension."""
    usable = [
        known
        for known, kind in METHODS.items()
        if kind.needs <= {"prototypes", "embeddings"}
        and not kind.same_kind
        and not kind.maps_queries
    ]
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, usable)}")
    if name not in usable:
        raise ConfigError(
            f"wanted a method that needs nothing but old vectors, but `{name}` needs more, or "
            f"another dimension, or has a map of its own. Choose one of {', '.join(usable)}."
        )


def check_config(config: FitConfig) -> None:
    """Refuses numbers that make no sense."""
    wanted = {
        "epochs": config.epochs >= 0,
        "batch_size": config.batch_size >= 1,
        "learning_rate": 0 <= config.learning_rate < inf,
        "weight_decay": 0 <= config.weight_decay < inf,
        "classification": 0 <= config.classification < inf,
        "together": config.together >= 1,
        "seconds": config.seconds is None or config.seconds >= 0,
    }
    for name, sensible in wanted.items():
        if not sensible:
            least = 1 if name in ("batch_size", "together") else 0
            raise ConfigError(
                f"wanted `{name}` of {least} or more, but got {getattr(config, name)}."
            )
