"""Checks three claims about our default method against the results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nobackfill_bench.quality.paired import CEILINGS, OURS, Compared, gain
from nobackfill_bench.quality.suite import read_way

MAY_LOSE = 0.5  # points of new/new below the independent model
FEW = 3  # with fewer seeds, the intervals are too wide for a conclusion
ROOM = 1.0  # points that the independent model gains; with less, P_1 divides by almost zero


@dataclass(frozen=True)
class Verdict:
    """Which claims about our default hold in one suite.

    Attributes:
        suite: Name of the suite.
        not_above: Other methods whose P_1 it does not beat with an interval above 0; None if P_1
            is not defined.
        compatible: Whether new/old is above old/old with an interval above 0.
        free: Whether the mean new/new is at most `MAY_LOSE` below that of the independent model;
            None if there is none.
        seeds: Number of seeds.
        room: Difference of the independent model from the old one, in points.
    """

    suite: str
    not_above: tuple[str, ...] | None
    compatible: bool
    free: bool | None
    seeds: int
    room: float


def judge(suite: str, compared: Compared, *, ours_too: Sequence[str] = ()) -> Verdict | None:
    """Checks the three claims in one suite; returns None if our default was not run.

    Args:
        suite: Name of the suite.
        compared: Runs of the suite.
        ours_too: Other names of our default, which do not count as other methods.
    """
    if OURS not in compared.runs:
        return None
    ours = (OURS, *ours_too, *CEILINGS)
    others = [way for way in compared.ways if read_way(way)[0] not in ours]
    known = compared.mean(OURS, compared.p_1).seeds > 0
    not_above = tuple(
        way for way in others if not compared.difference(OURS, way, compared.p_1).low > 0
    )
    return Verdict(
        suite,
        not_above if known else None,
        compared.mean(OURS, gain).low > 0,
        compared.mean(OURS, compared.free).value >= -MAY_LOSE if compared.ceilings else None,
        len(compared.runs[OURS]),
        compared.mean(OURS, compared.room).value,
    )


def first_paragraph(verdicts: Mapping[str, Verdict]) -> str:
    """Returns the first paragraph of the page: in which suites the claims hold.

    Args:
        verdicts: Verdict of each suite.
    """
    narrow = {name: verdict for name, verdict in verdicts.items() if verdict.room < ROOM}
    ahead = [
        name for name, verdict in verdicts.items() if verdict.not_above == () and name not in narrow
    ]
    lines = [
        f"Our default, `{OURS}`, was run on {len(verdicts)} upgrades. "
        f"Its P_1 is above that of every other method, with a paired 95 % interval above 0, "
        f"in {len(ahead)} of them{_listed(ahead)}."
    ]
    for name, verdict in verdicts.items():
        if verdict.not_above is None:
            why = "is no better than the old one" if verdict.free is not None else "was not run"
            lines.append(f"In `{name}` P_1 is not defined: the independent model {why}.")
        elif verdict.not_above:
            ways = ", ".join(f"`{way}`" for way in verdict.not_above)
            lines.append(f"In `{name}` this does not hold for {ways}.")
    for words, holds in (
        ("It is **not compatible** (new/old above old/old, interval above 0)", "compatible"),
        (f"Its new/new is **more than {MAY_LOSE} below** the independent model's", "free"),
    ):
        wrong = [name for name, verdict in verdicts.items() if getattr(verdict, holds) is False]
        lines.append(f"{words} in {', '.join(f'`{name}`' for name in wrong) or 'none'}.")
    for name, verdict in narrow.items():
        if verdict.not_above is not None:
            lines.append(
                f"In `{name}` P_1 means little: the independent model is only {verdict.room:.2f} "
                f"points above the old one."
            )
    few = [
        f"`{name}` ({verdict.seeds})" for name, verdict in verdicts.items() if verdict.seeds < FEW
    ]
    if few:
        lines.append(f"Too few seeds for a conclusion: {', '.join(few)}.")
    return " ".join(lines)


def _listed(names: list[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""
