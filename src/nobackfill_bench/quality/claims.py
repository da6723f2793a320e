"""What we would like to say of our default, and where the lines do not bear it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nobackfill_bench.quality.paired import CEILINGS, OURS, Compared, gain

MAY_LOSE = 0.5  # points of new/new against the independent model
FEW = 3  # seeds, below which intervals are too wide to say anything
ROOM = 1.0  # points that the independent model gains: with less, P_1 divides by next to nothing


@dataclass(frozen=True)
class Verdict:
    """What holds of our default in one suite.

    Attributes:
        suite: Its name.
        not_above: Other ways whose P_1 it does not beat with an interval above 0; None where no
            P_1 can be told.
        compatible: Whether new/old is above old/old with an interval above 0.
        free: Whether new/new is at most `MAY_LOSE` below the independent model's, on average; None
            where there is none.
        seeds: On how many seeds it was run.
        room: How far the independent model is above the old one, in points.
    """

    suite: str
    not_above: tuple[str, ...] | None
    compatible: bool
    free: bool | None
    seeds: int
    room: float


def judge(suite: str, compared: Compared, *, ours_too: Sequence[str] = ()) -> Verdict | None:
    """Looks at the three things that our default should be; None where it was not run.

    Args:
        suite: Its name.
        compared: Its runs.
        ours_too: Ways that are our default under another name, and no rivals.
    """
    if OURS not in compared.runs:
        return None
    others = [way for way in compared.ways if way not in (OURS, *ours_too, *CEILINGS)]
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
    """What a reader should know before any table.

    Args:
        verdicts: By suite.
    """
    narrow = {name: one for name, one in verdicts.items() if one.room < ROOM}
    ahead = [name for name, one in verdicts.items() if one.not_above == () and name not in narrow]
    said = [
        f"Our default, `{OURS}`, was put to {len(verdicts)} upgrades. "
        f"Its P_1 is above that of every other method, with a paired 95 % interval above 0, "
        f"in {len(ahead)} of them{_listed(ahead)}."
    ]
    for name, one in verdicts.items():
        if one.not_above is None:
            why = "is no better than the old" if one.free is not None else "was not run"
            said.append(f"In `{name}` no P_1 can be told: the independent model {why}.")
        elif one.not_above:
            ways = ", ".join(f"`{way}`" for way in one.not_above)
            said.append(f"In `{name}` that does not hold against {ways}.")
    for words, holds in (
        ("It is **not compatible** (new/old above old/old, interval above 0)", "compatible"),
        (f"Its new/new is **more than {MAY_LOSE} below** the independent model's", "free"),
    ):
        wrong = [name for name, one in verdicts.items() if getattr(one, holds) is False]
        said.append(f"{words} in {', '.join(f'`{name}`' for name in wrong) or 'none'}.")
    for name, one in narrow.items():
        if one.not_above is not None:
            said.append(
                f"In `{name}` P_1 says little: the independent model is only {one.room:.2f} points "
                f"above the old."
            )
    few = [f"`{name}` ({one.seeds})" for name, one in verdicts.items() if one.seeds < FEW]
    if few:
        said.append(f"So few seeds prove next to nothing: {', '.join(few)}.")
    return " ".join(said)


def _listed(names: list[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""
