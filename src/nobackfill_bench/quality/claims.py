"""Checks three claims about our default method against the results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nobackfill_bench.quality.paired import (
    BASELINE,
    CEILINGS,
    EARLIER,
    OURS,
    Compared,
    gain,
    value,
)
from nobackfill_bench.quality.suite import read_way

MAY_LOSE = 0.5  # points of new/new below the independent model, and below `PAPER` of either
NEAR = 0.3  # points of P_1 below the best method
PAPER = (BASELINE, "ndpp", "odpp")
FEW = 3  # with fewer seeds, the intervals are too wide for a conclusion
ROOM = 1.0  # points that the independent model gains; with less, P_1 divides by almost zero


@dataclass(frozen=True)
class Verdict:
    """Which claims about our default hold in one suite.

    Attributes:
        suite: Name of the suite.
        not_above: Other methods with common seeds whose P_1 it does not beat with an interval above
            0; None if P_1 is not defined.
        compatible: Whether new/old is above old/old with an interval above 0.
        free: Whether the mean new/new is at most `MAY_LOSE` below that of the independent model;
            None if it was not run on these seeds.
        seeds: Number of seeds.
        room: Difference of the independent model from the old one, in points.
        near: Whether the mean P_1 is at most `NEAR` below that of every other method.
        below: Methods of the paper whose new/old or new/new it may miss by more than `MAY_LOSE`:
            the interval of the difference reaches that far.
        unpaired: Other methods that have no seed in common with it.
    """

    suite: str
    not_above: tuple[str, ...] | None
    compatible: bool
    free: bool | None
    seeds: int
    room: float
    near: bool | None = None
    below: tuple[str, ...] = ()
    unpaired: tuple[str, ...] = ()


def judge(
    suite: str, compared: Compared, *, default: str = OURS, ours_too: Sequence[str] = ()
) -> Verdict | None:
    """Checks the three claims in one suite; returns None if our default was not run.

    Args:
        suite: Name of the suite.
        compared: Runs of the suite.
        default: Row of our default.
        ours_too: Other names of our default, which do not count as other methods.
    """
    if default not in compared.runs:
        return None
    ours = (default, *ours_too, *CEILINGS)
    others = [way for way in compared.ways if read_way(way)[0] not in ours]
    known = compared.mean(default, compared.p_1).seeds > 0
    free = compared.mean(default, compared.free)
    gaps = {way: compared.difference(default, way, compared.p_1) for way in others}
    not_above = tuple(way for way, gap in gaps.items() if gap.seeds and not gap.low > 0)
    return Verdict(
        suite,
        not_above if known else None,
        compared.mean(default, gain).low > 0,
        free.value >= -MAY_LOSE if free.seeds else None,
        len(compared.runs[default]),
        compared.mean(default, compared.room).value,
        _is_near(compared, default, others) if known else None,
        tuple(
            way for way in PAPER if way in compared.runs and _may_be_below(compared, default, way)
        ),
        tuple(way for way, gap in gaps.items() if not gap.seeds) if known else (),
    )


def _is_near(compared: Compared, default: str, others: Sequence[str]) -> bool:
    """Whether our mean P_1 is at most `NEAR` below each other one, on the same seeds."""
    gaps = (compared.difference(default, way, compared.p_1) for way in others)
    return all(gap.value >= -NEAR for gap in gaps if gap.seeds)


def _may_be_below(compared: Compared, default: str, way: str) -> bool:
    """Whether an interval of ours − `way` reaches below `-MAY_LOSE`, or there is none."""
    return any(
        not compared.difference(default, way, value(key)).low >= -MAY_LOSE
        for key in ("new_old", "new_new")
    )


def first_paragraph(verdicts: Mapping[str, Verdict], *, earlier: Sequence[str] = ()) -> str:
    """Returns the first paragraph of the page: in which suites the claims hold.

    Args:
        verdicts: Verdict of each suite.
        earlier: Suites that were run with the earlier default only.
    """
    narrow = {name: verdict for name, verdict in verdicts.items() if verdict.room < ROOM}
    sentences = [
        *_p_1_sentences(verdicts, narrow),
        *_map_sentences(verdicts),
        *(
            f"In `{name}` P_1 means little: the independent model is only {verdict.room:.2f} "
            f"points above the old one."
            for name, verdict in narrow.items()
            if verdict.not_above is not None
        ),
    ]
    few = [
        f"`{name}` ({verdict.seeds})" for name, verdict in verdicts.items() if verdict.seeds < FEW
    ]
    if few:
        sentences.append(f"Too few seeds for a conclusion: {', '.join(few)}.")
    if earlier:
        sentences.append(
            f"It was not run in {_names(earlier)}: their rows are of the earlier default, "
            f"`{EARLIER}`."
        )
    return " ".join(sentences)


def _p_1_sentences(verdicts: Mapping[str, Verdict], narrow: Mapping[str, Verdict]) -> Iterator[str]:
    """Yields where our P_1 is above that of other methods; `narrow` suites do not count."""
    wide = {name: verdict for name, verdict in verdicts.items() if name not in narrow}
    ahead = [
        name for name, verdict in wide.items() if verdict.not_above == () and not verdict.unpaired
    ]
    near = [name for name, verdict in wide.items() if verdict.near]
    yield (
        f"Our default, `{OURS}`, was run on {len(verdicts)} upgrades. "
        f"Its P_1 is above that of every other method, with a paired 95 % interval above 0, "
        f"in {len(ahead)} of them{_listed(ahead)}."
    )
    yield f"Its mean P_1 is the best or at most {NEAR} below in {len(near)}{_listed(near)}."
    for name, verdict in verdicts.items():
        if verdict.not_above is None:
            why = (
                "is no better than the old one"
                if verdict.free is not None
                else "was not run on the same seeds"
            )
            yield f"In `{name}` P_1 is not defined: the independent model {why}."
        elif verdict.not_above:
            yield f"In `{name}` this does not hold for {_names(verdict.not_above)}."
        if verdict.unpaired:
            yield f"In `{name}` no seed is shared with {_names(verdict.unpaired)}."


def _map_sentences(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yields where our new/old or new/new is too low."""
    for words, claim in (
        ("It is **not compatible** (new/old above old/old, interval above 0)", "compatible"),
        (f"Its new/new is **more than {MAY_LOSE} below** the independent model's", "free"),
    ):
        wrong = [name for name, verdict in verdicts.items() if getattr(verdict, claim) is False]
        yield f"{words} in {_names(wrong) or 'none'}."
    below = [
        f"`{name}` ({_names(verdict.below)})" for name, verdict in verdicts.items() if verdict.below
    ]
    yield (
        f"Its new/old and new/new are at most {MAY_LOSE} below those of {_names(PAPER)}, by the "
        f"lower end of the interval, everywhere{' but in ' + ', '.join(below) if below else ''}."
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed(names: list[str]) -> str:
    return f" ({_names(names)})" if names else ""
