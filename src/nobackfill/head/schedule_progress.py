"""The record of a fit."""

from dataclasses import dataclass, field


@dataclass
class Progress:
    """How a fit went.

    Attributes:
        closed: Of each closed form new/old mAP on the held-out classes; NaN where there are none.
        start: The name of the closed form that was begun with.
        history: new/old mAP on the held-out classes after each round: an epoch, or a part of one
            where epochs are long.
        best: The round that was kept; 0 for the closed form.
        planned: How many batches there are to learn from without limits of time or patience.
        seen: How many were learned from.
        late: Whether time was up before the rest.
        done: The share of the training that is behind, by steps or by time.
        stored: New/new mAP on the held-out classes of what could be stored: see `compare_stored`.
    """

    closed: dict[str, float] = field(default_factory=dict)
    start: str = ""
    history: list[float] = field(default_factory=list)
    best: int = 0
    planned: int = 0
    seen: int = 0
    late: bool = False
    done: float = 0.0
    stored: dict[str, float] = field(default_factory=dict)
