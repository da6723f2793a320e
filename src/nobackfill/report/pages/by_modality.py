"""The report of a multimodal upgrade: each direction by itself, and the gap between modalities."""

from collections.abc import Mapping, Sequence
from typing import Any

from nobackfill.core.numbers import interval_in_points, maybe
from nobackfill.core.page import Figure, Page, Section, Table
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.by_modality import ByModality
from nobackfill.evaluation.conclusion import CHANGE, falling
from nobackfill.evaluation.modality_gap import Gap
from nobackfill.evaluation.overview import pair_name
from nobackfill.evaluation.verdict import between
from nobackfill.report.charts import intervals

PAIRS = ("old_old", "new_old", "old_new", "new_new", "independent")
METRICS = {
    "map": "mAP",
    "recall_at_1": "Recall@1",
    "recall_at_5": "Recall@5",
    "recall_at_10": "Recall@10",
}


def modalities_page(
    result: ByModality, *, title: str, made_of: Mapping[str, str] | None = None
) -> Page:
    """The measurements of each direction.

    Args:
        result: Result of `evaluate_modalities`.
        title: Title of the page.
        made_of: Sources of the numbers.
    """
    summary = result.summary()
    directions = summary["directions"]
    protocol = next(iter(directions.values()))["protocol"]
    return Page(
        title=title,
        summary=[
            result.conclusion,
            *falling(between(directions)),
            *(pair.sentence for pair in result.gap_pairs),
        ],
        verdict=result.verdict,
        sections=[
            numbers_section(directions),
            today_section(directions),
            *gap_section(result.gap_pairs),
        ],
        notes=summary["notes"],
        made_of={"protocol": protocol, **(made_of or {})},
    )


def numbers_section(directions: Mapping[str, Mapping[str, Any]]) -> Section:
    """A table for each metric, with every pair of models in every direction."""
    measured = [
        pair
        for pair in PAIRS
        if pair != "independent" or any(pair in part["metrics"] for part in directions.values())
    ]
    columns = ["direction", *map(pair_name, measured)]
    tables = [
        Table(
            columns,
            [
                [
                    direction_name(name),
                    *(maybe(part["metrics"].get(pair, {}).get(key), digits=2) for pair in measured),
                ]
                for name, part in directions.items()
            ],
            frozenset(columns[1:]),
            caption=caption,
        )
        for key, caption in METRICS.items()
    ]
    text = (
        "Percent; “text to image” are texts that search for images. old/new are queries by the old "
        "model on a gallery that the new one embedded: the result for clients that still use the "
        "old model when the gallery is new."
    )
    if "independent" in measured:
        text += " “independent” is a new model trained without constraint, on its own gallery."
    return Section("The numbers", text, tables=tables)


def today_section(directions: Mapping[str, Mapping[str, Any]]) -> Section:
    """The change on the day of the upgrade in each direction, with its interval."""
    gains = {direction_name(n): part["differences"][CHANGE] for n, part in directions.items()}
    columns = ["direction", "new/old − old/old (95 %)", "verdict", "queries", "gallery"]
    rows = [
        [
            direction_name(name),
            in_points(gains[direction_name(name)]),
            part["verdict"],
            f"{part['num_queries']:,}",
            f"{part['num_gallery']:,}",
        ]
        for name, part in directions.items()
    ]
    drawn = {name: interval_in_points(gain) for name, gain in gains.items()}
    return Section(
        "The day of the upgrade",
        "Points of mAP. The verdict of the page depends only on directions between modalities.",
        tables=[Table(columns, rows, frozenset(columns) - {"direction", "verdict"})],
        figures=[
            Figure(
                lambda: intervals(
                    drawn, label="new/old − old/old, in points of mAP; 95 % intervals"
                ),
                "How sure the differences are",
                "; ".join(f"{name}: {in_points(gain)}" for name, gain in gains.items()) + ".",
            )
        ],
    )


def gap_section(pairs: Sequence[Gap]) -> list[Section]:
    """The distances between modalities; no section if there is only one."""
    if not pairs:
        return []
    rows = [
        [what, "–" if gap is None else f"{gap:.4f}"]
        for first, second, *gaps in pairs
        for what, gap in zip(
            (
                f"old {first}s and old {second}s",
                f"new {first}s and new {second}s",
                f"new {second}s and old {first}s",
                f"new {first}s and old {second}s",
            ),
            gaps,
            strict=True,
        )
    ]
    return [
        Section(
            "The modality gap",
            "The distance between the mean of one modality's unit vectors and the other's, from 0 "
            "to 2 (Liang et al., Mind the Gap, NeurIPS 2022). If new queries have another distance "
            "to the stored gallery than old ones, thresholds move, and so do rankings that mix "
            "modalities.",
            tables=[Table(["between", "distance"], rows, frozenset({"distance"}))],
            in_terminal=False,  # the summary contains the distances
        )
    ]


def direction_name(direction: str) -> str:
    """A direction as people read it.

    Example:
        >>> direction_name("text_to_image")
        'text to image'
    """
    return direction.replace("_", " ")
