"""The verdict of an evaluation: its values, its sentences, and the verdict of several directions.

The functions take summaries in the form of the JSON output, so that pages and the terminal print
the same sentences.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from nobackfill.core.numbers import listed

Verdict = Literal["compatible", "not compatible", "mixed", "undecided"]
ADVICE: dict[Verdict, str] = {
    "compatible": "it may go live today, without embedding the gallery again",
    "mixed": "decide which metric your users feel, and evaluate with --metric",
    "undecided": "evaluate with more queries, of more classes",
}
DIRECTION = re.compile(r"(?:(?P<test>.+)_)?(?P<direction>(?:image|text)_to_(?:image|text))")
METRIC_NAMES = {
    "map": "mAP",
    "recall_at_1": "Recall@1",
    "recall_at_5": "Recall@5",
    "recall_at_10": "Recall@10",
    "ndcg_at_10": "nDCG@10",
}
TOP_METRICS = ("recall_at_1", "ndcg_at_10")  # of the first results
FELT = {  # users who notice a change of a metric, and the things that they get more or fewer of
    "map": ("users who read on", "relevant results"),
    "recall_at_1": ("users who take the first result", "hits"),
    "recall_at_5": ("users who look at five results", "hits"),
    "recall_at_10": ("users who look at ten results", "hits"),
    "ndcg_at_10": ("users who read the first ten results", "relevant results near the top"),
}
PAIRS = {"old_old": "old/old", "new_old": "new/old", "new_new": "new/new"}


def advice_on(verdict: Verdict, *, gains_again: bool | None) -> str:
    """Returns what to do after a verdict, as a clause.

    Args:
        verdict: The verdict.
        gains_again: Whether new/new is above old/old, see `again_gains`; None if it was not
            measured. Embedding the gallery again is advised only if it is.

    Example:
        >>> advice_on("not compatible", gains_again=False)
        'keep the old model; embedding the gallery again is not known to help either'
    """
    if verdict != "not compatible":
        return ADVICE[verdict]
    if gains_again is None:
        return "keep the old model, or measure new/new before you embed the gallery again"
    if gains_again:
        return "keep the old model, or embed the gallery again"
    return "keep the old model; embedding the gallery again is not known to help either"


def again_gains(summaries: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether new/new is above old/old, by more than chance, in each of these summaries.

    None if one of them has no new/new, and no other one decides it.
    """
    changes = [summary["differences"].get("new_new - old_old") for summary in summaries]
    rises = [None if change is None else _rises(change) for change in changes]
    if False in rises:
        return False
    return None if None in rises or not rises else True


def _rises(change: Mapping[str, Any]) -> bool:
    """Whether a difference is above 0; its interval decides if there is one."""
    lowest: float = change["mean"] if change["low"] is None else change["low"]
    return lowest > 0


def verdict_sentence(
    verdict: Verdict,
    gain: str,
    *,
    gains_again: bool | None = None,
    where: str = "",
    doubts: str = "",
    unchanged: bool = False,
    reasons: Sequence[str] = (),
    others: str = "",
) -> str:
    """Returns the verdict of an upgrade in a sentence, with what to do.

    `gains_again` is that of `advice_on`. `where` and `doubts` are directions: those searched, and
    those undecided if not all are. With `unchanged`, the interval is 0 to 0. With `reasons`, the
    numbers prove nothing. `others` are the changes of other metrics, see `changes_sentence`.

    Example:
        >>> verdict_sentence("not compatible", "-1.2 (-2.0 to -0.4)")
        'On the stored gallery the new model gives -1.2 (-2.0 to -0.4) points of mAP ...: keep ...'
    """
    finding = (
        f"On the stored gallery the new model gives {gain} points of mAP against the old one"
        f"{where and ' ' + where}"
    )
    if reasons:
        return f"This evaluation proves nothing: {'; '.join(reasons)}."
    advice = advice_on(verdict, gains_again=gains_again)
    if others and verdict in ("mixed", "not compatible"):  # mAP alone does not explain it
        return f"{finding}. {others} {as_sentence(advice)}"
    if verdict == "undecided" and unchanged:
        return f"{finding}: nothing changes."
    if verdict == "undecided":
        finding = f"{finding}, which may be chance{doubts and ' ' + doubts}."
        return f"{finding} {as_sentence(advice)}"
    return f"{finding}: {advice}."


def directions_sentence(verdicts: Mapping[str, Verdict], *, gains_again: bool | None = None) -> str:
    """Returns the joint verdict of several directions in a sentence, with what to do.

    `gains_again` is that of `advice_on`, for all of them together.

    Example:
        >>> directions_sentence({"text_to_image": "compatible", "image_to_text": "undecided"})
        'What new queries change on the stored gallery may be chance from image to text. ...'
    """
    if not verdicts:
        return "No direction between two modalities was measured."
    joint = joint_verdict(verdicts.values())
    where = ", ".join(from_to(name) for name, verdict in verdicts.items() if verdict == joint)
    advice = as_sentence(advice_on(joint, gains_again=gains_again))
    return {
        "compatible": f"On the stored gallery new queries do better than old ones {where}.",
        "not compatible": f"On the stored gallery new queries do worse than old ones {where}. "
        f"{advice}",
        "mixed": f"On the stored gallery some metrics rise and others fall {where}. {advice}",
        "undecided": f"What new queries change on the stored gallery may be chance {where}. "
        f"{advice}",
    }[joint]


def changes_sentence(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns which metrics change beyond chance, except the first, and who feels it; may be empty.

    Example:
        >>> falls = {"mean": -0.07, "low": -0.09, "high": -0.05}
        >>> changes_sentence({"map": {"mean": 0.01, "low": 0.002, "high": 0.02},
        ...                   "recall_at_1": falls})
        'Recall@1 falls by 7.0 points (9.0 to 5.0): users who take the first result get fewer hits.'
    """
    sentences = []
    for name, change in list(changes.items())[1:]:
        if change["low"] is None or change["low"] <= 0 <= change["high"]:
            continue
        mean, low, high = (f"{100 * abs(change[key]):.1f}" for key in ("mean", "low", "high"))
        who, what = FELT[name]
        verb, more = ("rises", "more") if change["mean"] > 0 else ("falls", "fewer")
        sentences.append(
            f"{METRIC_NAMES[name]} {verb} by {mean} points ({low} to {high}): {who} get {more} "
            f"{what}."
        )
    return " ".join(sentences)


def criterion_sentence(summary: Mapping[str, Any]) -> str:
    """Whether the criterion of the literature is met, which compares two means of mAP."""
    met = "met" if summary["new_old_above_old_old"] else "not met"
    return f"The criterion of the literature, new/old above old/old in mean mAP, is {met}."


def as_sentence(text: str) -> str:
    """Turns a clause into a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def what_falls(summary: Mapping[str, Any], *, where: str = "") -> str:
    """Returns a sentence on the metrics of the first results that get worse; empty if none does.

    The verdict depends on mAP, which covers whole rankings. It can rise while Recall@1 or nDCG@10
    fall, or while more queries lose their first hit than gain one.

    Example:
        >>> before, after = ({"recall_at_1": value, "ndcg_at_10": 0.2} for value in (0.3, 0.25))
        >>> what_falls({
        ...     "metrics": {"old_old": before, "new_old": after},
        ...     "flips": [{"negative": 0.15, "positive": 0.1}],
        ... })
        'The first answers get worse: Recall@1 falls from 30.00 to 25.00 %, and more ...'
    """
    # compare the numbers as they are printed
    old, new = (summary["metrics"][pair] for pair in ("old_old", "new_old"))
    values = {
        METRIC_NAMES[key]: (f"{100 * old[key]:.2f}", f"{100 * new[key]:.2f}") for key in TOP_METRICS
    }
    falls = [
        f"{name} falls from {before} to {after} %"
        for name, (before, after) in values.items()
        if float(after) < float(before)
    ]
    flips = summary["flips"][0]
    if flips["negative"] > flips["positive"]:
        falls.append("more queries lose their first hit than gain one")
    if not falls:
        return ""
    return f"The first answers get worse{where and ' ' + where}: {listed(falls, comma=True)}."


def joint_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the verdict of several directions together: the worst one.

    Example:
        >>> joint_verdict(["compatible", "undecided"]), joint_verdict(["compatible"])
        ('undecided', 'compatible')
    """
    values = set(verdicts)
    for worst in ("not compatible", "mixed"):
        if worst in values:
            return worst
    return "compatible" if values == {"compatible"} else "undecided"


def directions_of(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the summary of each direction of a run's first test; empty for images alone."""
    if "direction" not in summary:
        return {}
    test, first = _parts(summary["direction"])
    own = summary.get("verdicts", {}).get(first, summary["verdict"])
    directions: dict[str, Mapping[str, Any]] = {first: {**summary, "verdict": own}}
    for name, result in summary["tests"].items():
        other, direction = _parts(name)
        if other == test:
            directions[direction] = result
    return directions


def _parts(name: str) -> tuple[str, str]:
    """Returns a test and a direction: `more_text_to_image` is ("more", "text_to_image")."""
    match = DIRECTION.fullmatch(name)
    return (match["test"] or "", match["direction"]) if match else ("", name)


def is_between_modalities(direction: str) -> bool:
    """Whether queries and gallery of a direction have different modalities.

    Example:
        >>> is_between_modalities("text_to_image"), is_between_modalities("text_to_text")
        (True, False)
    """
    query, _, gallery = direction.partition("_to_")
    return query != gallery


def between(directions: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the directions between two modalities: those that a verdict counts."""
    return {name: result for name, result in directions.items() if is_between_modalities(name)}


def over_directions(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run's summary with the joint verdict of all directions between images and texts.

    The key `verdicts` holds the verdict of each direction. The summary of a run of images alone
    is returned as it is.
    """
    directions = directions_of(summary)
    if not directions:
        return dict(summary)
    verdict = joint_verdict(result["verdict"] for result in between(directions).values())
    return {
        **summary,
        "verdict": verdict,
        "compatible": is_compatible(verdict),
        "verdicts": {name: result["verdict"] for name, result in directions.items()},
    }


def is_compatible(verdict: Verdict) -> bool | None:
    """Converts a verdict to a truth value; None for "undecided"."""
    return {"compatible": True, "not compatible": False}.get(verdict)


def run_sentence(summary: Mapping[str, Any]) -> str:
    """Returns the result of a run: mAP in each direction that counts, and the joint verdict.

    Example:
        >>> run_sentence({"old_old": 0.2, "new_old": 0.3, "new_new": 0.4, "verdict": "compatible"})
        'mAP old/old 20.00, new/old 30.00, new/new 40.00: compatible.'
    """
    counted = between(directions_of(summary))
    if not counted:
        return f"mAP {_means(summary)}: {summary['verdict']}."
    means = "; ".join(f"{from_to(name)} {_means(result)}" for name, result in counted.items())
    verdict = over_directions(summary)["verdict"]
    decided_by = [name for name, result in counted.items() if result["verdict"] == verdict]
    alone = "; no other direction between images and texts was measured" * (len(counted) == 1)
    return f"mAP {means}: {verdict} {listed([from_to(name) for name in decided_by])}{alone}."


def _means(summary: Mapping[str, Any]) -> str:
    """Returns the mAP of each pair of models, in percent."""
    return ", ".join(
        f"{name} {'–' if summary[key] is None else format(100 * summary[key], '.2f')}"
        for key, name in PAIRS.items()
    )


def from_to(direction: str) -> str:
    """Returns a direction in words.

    Example:
        >>> from_to("text_to_image")
        'from text to image'
    """
    return f"from {direction.replace('_', ' ')}"
