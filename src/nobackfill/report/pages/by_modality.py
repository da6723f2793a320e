"""The report of a multimodal upgrade: every direction by itself, and the gap between modalities."""

from collections.abc import Mapping, Sequence
from typing import Any

from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.by_modality import ByModality
from nobackfill.evaluation.modality_gap import Gap
from nobackfill.evaluation.verdict import between
from nobackfill.report.charts import intervals
from nobackfill.report.page import Figure, Page, Section, Table
from nobackfill.report.pages.conclusion import falling

PAIRS = {
    "old_old": "old/old",
    "new_old": "new/old",
    "old_new": "old/new",
    "new_new": "new/new",
    "independent": "independent",
}
METRICS = {
    "map": "mAP",
    "recall_at_1": "Recall@1",
    "recall_at_5": "Recall@5",
    "recall_at_10": "Recall@10",
}


def modalities_page(
    found: ByModality, *, title: str, made_of: Mapping[str, str] | None = None
) -> Page:
    """Writes down what was measured in each direction.

    Args:
        found: As `evaluate_modalities` returns it.
        title: Title of the page.
        made_of: Where the numbers come from.
    """
    summary = found.summary()
    directions = summary["directions"]
    protocol = next(iter(directions.values()))["protocol"]
    return Page(
        title=title,
        summary=[
            found.conclusion,
            *falling(between(directions)),
            *(pair.sentence for pair in found.gap_pairs),
        ],
        verdict=found.verdict,
        sections=[
            today_section(directions),
            numbers_section(directions),
            *gap_section(found.gap_pairs),
        ],
        not_measured=summary["notes"],
        made_of={"protocol": protocol, **(made_of or {})},
    )


def named(direction: str) -> str:
    """A direction as people read it.

    Example:
        >>> named("text_to_image")
        'text to image'
    """
    return direction.replace("_", " ")


def today_section(directions: Mapping[str, Mapping[str, Any]]) -> Section:
    """What the day of the upgrade brings, and how sure that is."""
    columns = ["direction", "queries", "gallery", "old/old", "new/old", "change (95 %)", "verdict"]
    gains = {named(n): one["differences"]["new_old - old_old"] for n, one in directions.items()}
    rows = [
        [
            named(name),
            f"{one['num_queries']:,}",
            f"{one['num_gallery']:,}",
            percent(one["old_old"]),
            percent(one["new_old"]),
            in_points(gains[named(name)]),
            one["verdict"],
        ]
        for name, one in directions.items()
    ]
    drawn = {
        name: (100 * one["mean"], _points(one["low"]), _points(one["high"]))
        for name, one in gains.items()
    }
    return Section(
        "The day of the upgrade",
        "mAP in percent; “text to image” are texts that ask for images. The verdict of the page "
        "looks at directions between modalities alone.",
        tables=[Table(columns, rows, frozenset(columns[1:-1]))],
        figures=[
            Figure(
                intervals(drawn, label="new/old − old/old, in points of mAP; 95 % intervals"),
                "How sure the differences are",
                "; ".join(f"{name}: {in_points(one)}" for name, one in gains.items()) + ".",
            )
        ],
    )


def numbers_section(directions: Mapping[str, Mapping[str, Any]]) -> Section:
    """Every pair of models in every direction."""
    measured = [
        pair
        for pair in PAIRS
        if pair != "independent" or any(pair in one["metrics"] for one in directions.values())
    ]
    columns = ["direction", *(PAIRS[pair] for pair in measured)]
    tables = [
        Table(
            columns,
            [
                [
                    named(name),
                    *(percent(one["metrics"].get(pair, {}).get(key)) for pair in measured),
                ]
                for name, one in directions.items()
            ],
            frozenset(columns[1:]),
            caption=caption,
        )
        for key, caption in METRICS.items()
    ]
    text = (
        "Percent. old/new are queries by the old model on a gallery that the new one embedded: "
        "what clients see that are still old when the gallery is new."
    )
    if "independent" in measured:
        text += " “independent” is a new model trained without constraint, on its own gallery."
    return Section("The numbers", text, tables=tables)


def gap_section(pairs: Sequence[Gap]) -> list[Section]:
    """How far the modalities lie apart; none where there is only one."""
    if not pairs:
        return []
    rows = [
        [what, "–" if gap is None else f"{gap:.4f}"]
        for one, other, *gaps in pairs
        for what, gap in zip(
            (
                f"old {one}s and old {other}s",
                f"new {one}s and new {other}s",
                f"new {other}s and old {one}s",
                f"new {one}s and old {other}s",
            ),
            gaps,
            strict=True,
        )
    ]
    return [
        Section(
            "The modality gap",
            "The distance between the mean of one modality's unit vectors and the other's, from 0 "
            "to 2 (Liang et al., Mind the Gap, NeurIPS 2022). Where new queries lie at another "
            "distance from the stored gallery than old ones did, thresholds move, and so do "
            "rankings that mix modalities.",
            tables=[Table(["between", "distance"], rows, frozenset({"distance"}))],
        )
    ]


def percent(value: float | None) -> str:
    """A fraction in percent; a dash where it was not measured."""
    return "–" if value is None else f"{100 * value:.2f}"


def _points(value: float | None) -> float:
    return float("nan") if value is None else 100 * value
