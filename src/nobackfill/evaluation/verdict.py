"""What numbers come to in words: one verdict of several directions, and what a gain of mAP hides.

All take summaries as they stand in JSON, so that a page and a terminal say the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nobackfill.evaluation.by_modality import is_between_modalities
from nobackfill.evaluation.evaluate import Verdict

DIRECTION = re.compile(r"(?:(?P<test>.+)_)?(?P<direction>(?:image|text)_to_(?:image|text))")
AT_THE_TOP = {"recall_at_1": "Recall@1", "ndcg_at_10": "nDCG@10"}
PAIRS = {"old_old": "old/old", "new_old": "new/old", "new_new": "new/new"}


def what_falls(summary: Mapping[str, Any], *, where: str = "") -> str:
    """What the first answers lose on the day of the upgrade, in a sentence; empty if nothing.

    The verdict looks at mAP, over whole rankings: that may rise while Recall@1 or nDCG@10 fall, or
    while more queries lose their first hit than gain one.

    Args:
        summary: As `Evaluation.summary` returns it.
        where: Said behind "get worse", such as "from text to image".

    Example:
        >>> before, after = ({"recall_at_1": one, "ndcg_at_10": 0.2} for one in (0.3, 0.25))
        >>> what_falls({
        ...     "metrics": {"old_old": before, "new_old": after},
        ...     "flips": [{"negative": 0.15, "positive": 0.1}],
        ... })
        'The first answers get worse: Recall@1 falls from 30.00 to 25.00 %, and more ...'
    """
    before, after = (summary["metrics"][pair] for pair in ("old_old", "new_old"))
    values = {
        name: (f"{100 * before[key]:.2f}", f"{100 * after[key]:.2f}")
        for key, name in AT_THE_TOP.items()
    }
    falls = [
        f"{name} falls from {one} to {other} %"
        for name, (one, other) in values.items()
        if float(other) < float(one)
    ]
    first = summary["flips"][0]
    if first["negative"] > first["positive"]:
        falls.append("more queries lose their first hit than gain one")
    if not falls:
        return ""
    return f"The first answers get worse{where and ' ' + where}: {listed(falls, comma=True)}."


def joint_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several directions together: one that is worse decides, then one in doubt.

    Example:
        >>> joint_verdict(["compatible", "undecided"]), joint_verdict(["compatible"])
        ('undecided', 'compatible')
    """
    found = set(verdicts)
    if "not compatible" in found:
        return "not compatible"
    return "compatible" if found == {"compatible"} else "undecided"


def directions_of(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The directions that a run of images and texts was asked in, the one at the top first.

    Those of its first test; none for a run of images alone.

    Args:
        summary: As `evaluation.json` of the run has it.
    """
    if "direction" not in summary:
        return {}
    test, first = _parts(summary["direction"])
    own = summary.get("verdicts", {}).get(first, summary["verdict"])
    found: dict[str, Mapping[str, Any]] = {first: {**summary, "verdict": own}}
    for name, one in summary["tests"].items():
        other, direction = _parts(name)
        if other == test:
            found[direction] = one
    return found


def _parts(name: str) -> tuple[str, str]:
    """A test and a direction: `more_text_to_image` is ("more", "text_to_image")."""
    found = DIRECTION.fullmatch(name)
    return (found["test"] or "", found["direction"]) if found else ("", name)


def between(directions: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Those that a verdict counts: between two modalities, as `evaluate --by-modality` does."""
    return {name: one for name, one in directions.items() if is_between_modalities(name)}


def over_directions(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A run's summary whose verdict is that of all directions between images and texts.

    The verdict of each stands under `verdicts`. That of a run of images alone stays as it is.

    Args:
        summary: As `evaluation.json` of the run has it.
    """
    directions = directions_of(summary)
    if not directions:
        return dict(summary)
    verdict = joint_verdict(one["verdict"] for one in between(directions).values())
    return {
        **summary,
        "verdict": verdict,
        "compatible": {"compatible": True, "not compatible": False}.get(verdict),
        "verdicts": {name: one["verdict"] for name, one in directions.items()},
    }


def run_sentence(summary: Mapping[str, Any]) -> str:
    """What a run came to: mAP in each direction that counts, and one verdict of all of them.

    Args:
        summary: As `evaluation.json` of the run has it.

    Example:
        >>> run_sentence({"old_old": 0.2, "new_old": 0.3, "new_new": 0.4, "verdict": "compatible"})
        'mAP old/old 20.00, new/old 30.00, new/new 40.00: compatible.'
    """
    counted = between(directions_of(summary))
    if not counted:
        return f"mAP {_means(summary)}: {summary['verdict']}."
    told = "; ".join(f"{from_to(name)} {_means(one)}" for name, one in counted.items())
    verdict = over_directions(summary)["verdict"]
    decided_by = [name for name, one in counted.items() if one["verdict"] == verdict]
    alone = "; no other between images and texts was asked" if len(counted) == 1 else ""
    return f"mAP {told}: {verdict} {listed([from_to(name) for name in decided_by])}{alone}."


def _means(summary: Mapping[str, Any]) -> str:
    """The mAP of each pair of models, in percent."""
    return ", ".join(
        f"{name} {'–' if summary[key] is None else format(100 * summary[key], '.2f')}"
        for key, name in PAIRS.items()
    )


def from_to(direction: str) -> str:
    """A direction as people say it.

    Example:
        >>> from_to("text_to_image")
        'from text to image'
    """
    return f"from {direction.replace('_', ' ')}"


def listed(parts: Sequence[str], *, comma: bool = False) -> str:
    """Parts of a sentence, one after the other.

    Args:
        parts: One or more.
        comma: Whether one stands before the last "and", too.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b"], comma=True), listed(["a"])
        ('a, b and c', 'a, and b', 'a')
    """
    *others, last = parts
    if not others:
        return last
    return f"{', '.join(others)}{',' if comma else ''} and {last}"
