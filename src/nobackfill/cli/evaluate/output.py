"""Output of `nobackfill evaluate` on single queries, slices and thresholds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.evaluation.query_changes import Comparison
    from nobackfill.report.page import Section


@dataclass(frozen=True)
class Details:
    """Results to print beside the means.

    Attributes:
        slices: Columns whose worst values to print.
        smallest: Smallest number of queries of a slice.
        flips: Number of first results; queries that lose their hit among them are listed.
        false_accept: Share of strangers that pass the thresholds.
    """

    slices: Sequence[str]
    smallest: int
    flips: int | None
    false_accept: float | None

    def in_json(self, comparison: "Comparison") -> dict[str, Any]:
        """The results as keys of the JSON object."""
        results: dict[str, Any] = {}
        if self.slices:
            results["slices"] = {
                column: [
                    {**asdict(part), "difference": part.difference.summary()}
                    for part in comparison.slices(column, smallest=self.smallest)
                ]
                for column in self.slices
            }
        if self.flips is not None:
            results["flipped"] = [asdict(query) for query in comparison.flipped(self.flips)]
            results["won"] = [asdict(query) for query in comparison.won(self.flips)]
        if self.false_accept is not None:
            thresholds = comparison.thresholds(self.false_accept)
            results["thresholds"] = [asdict(threshold) for threshold in thresholds]
        return results

    def as_sections(self, comparison: "Comparison") -> list["Section"]:
        """The results as sections of a page."""
        from nobackfill.report.pages.evaluation import (
            flips_section,
            slice_section,
            thresholds_section,
        )

        sections = [
            slice_section(column, comparison.slices(column, smallest=self.smallest))
            for column in self.slices
        ]
        if self.flips is not None:
            lost, won = comparison.flipped(self.flips), comparison.won(self.flips)
            sections.append(flips_section(self.flips, lost, won))
        if self.false_accept is not None:
            sections.append(thresholds_section(comparison.thresholds(self.false_accept)))
        return sections
