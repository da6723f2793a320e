"""Steps of a job, as a display of progress receives them."""

from collections.abc import Callable

Number = int | float


class Step(str):
    """Name of a step, and the amount of it that is done.

    A callback that only needs names can treat it as a text.

    Args:
        name: Name of the step.
        done: Amount that is done.
        total: Whole amount; None if it is unknown.
        unit: Plural noun for the counted things; empty if `done` and `total` are not counts.

    Example:
        >>> step = Step("searching", 50, 200, "queries")
        >>> step, step.done / step.total
        ('searching', 0.25)
    """

    done: Number
    total: Number | None
    unit: str

    def __new__(
        cls, name: str, done: Number = 0, total: Number | None = None, unit: str = ""
    ) -> "Step":
        """A text with attributes."""
        step = super().__new__(cls, name)
        step.done, step.total, step.unit = done, total, unit
        return step


Watch = Callable[[str], None]  # receives the name of each step; a `Step` if its share is known


def unwatched(step: str) -> None:
    """Ignores the step."""
