"""What `print` and `nobackfill matrix` show of a compatibility matrix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nobackfill.core.console import visible
from nobackfill.core.numbers import maybe
from nobackfill.core.page import Figure, Page, Section, Table

if TYPE_CHECKING:
    from nobackfill.evaluation.matrix import CompatibilityMatrix, Upgrade, UpgradeScores

TITLE = "Who can search whose gallery"
CORNER = "query by ↓  gallery by →"
WIDTH = 80  # longest line of a table; models with longer names are numbered
SCORES = ("P_up", "P_comp", "P_1", "M(o,o)", "M*")


def matrix_page(matrix: "CompatibilityMatrix", *, figures: Sequence[Figure] = ()) -> Page:
    """Makes the page: the matrix and every upgrade in it."""
    hint = (
        "no P-scores: they need a model trained without constraint in place of a newer one "
        "(--independent NAME=FILE)"
    )
    return Page(
        "Compatibility matrix",
        summary=matrix_conclusion(matrix),
        sections=[matrix_section(matrix, figures=figures), upgrades_section(matrix)],
        notes=[*([] if matrix.independent else [hint]), *matrix.notes],
    )


def matrix_conclusion(matrix: "CompatibilityMatrix") -> list[str]:
    """Returns AC and AM in words; empty if an entry is missing."""
    if matrix.ac is None:
        return []
    upgrades = len(matrix.upgrades)
    return [
        f"AC {matrix.ac:.2f}: {round(matrix.ac * upgrades)} of {upgrades} upgrades find more in "
        f"the old gallery than the old model did.",
        f"AM {matrix.am:.3f}: the mean mAP, own galleries and older ones.",
    ]


def matrix_section(
    matrix: "CompatibilityMatrix",
    title: str = TITLE,
    *,
    figures: Sequence[Figure] = (),
) -> Section:
    """Returns the mAP of every model's queries on every model's gallery, as a table."""
    names, size = matrix.names, len(matrix.names)
    searched = ""
    if matrix.num_queries:
        searched = f", {matrix.num_queries:,} queries, {matrix.num_gallery:,} gallery items"
    # name the columns, or number them if they would not fit
    heads, labels = list(names), list(names)
    longest = max(map(len, names))
    if max(len(CORNER), longest) + sum(2 + max(7, len(name)) for name in names) > WIDTH:
        heads = [str(number) for number in range(1, size + 1)]
        labels = [f"{number} {name}" for number, name in zip(heads, names, strict=True)]
    rows = [[labels[i], *(_entry(matrix, i, j) for j in range(size))] for i in range(size)]
    return Section(
        title,
        f"mAP in percent{searched}. ● a model on its own gallery, ▲ above and ▼ below that; △ and "
        f"▽ the same where older models search newer galleries.",
        tables=[Table([CORNER, *heads], rows, frozenset(heads))],
        figures=figures,
    )


def upgrades_section(matrix: "CompatibilityMatrix") -> Section:
    """Returns every upgrade in a line, with P-scores if there are independent models."""
    pairs = ["old/old", "new/old", "new/new"]
    columns = ["upgrade", *pairs, "new/old − old/old"]
    rows, missing = [], []
    for upgrade in matrix.upgrades:
        name = f"{upgrade.old} → {upgrade.new}"
        values = (upgrade.old_old, upgrade.new_old, upgrade.new_new)
        row = [name, *(maybe(value, digits=2) for value in values), _change(upgrade)]
        if not matrix.independent:
            rows.append(row)
            continue
        for number, scores in enumerate(upgrade.p_scores):
            rows.append([*(row if number == 0 else [""] * len(row)), *_scores(scores)])
            if scores.scores is None:
                missing.append(f"No P-scores of {visible(name)}: {scores.reason}.")
    text = "By the means alone; `nobackfill evaluate` measures how sure a difference is."
    if matrix.independent:
        columns += SCORES
        text += " M(o,o): old/old. M*: the independent model of the newer one on its own gallery."
    return Section(
        "Upgrade by upgrade",
        "\n".join([*missing, text]),
        tables=[Table(columns, rows, frozenset(columns[1:]), details=frozenset(pairs))],
    )


def _entry(matrix: "CompatibilityMatrix", i: int, j: int) -> str:
    """Returns an entry with its sign against the gallery's own model."""
    value, own = matrix.map[i][j], matrix.map[j][j]
    if value is None or own is None:
        return "–  "
    better, worse = ("▲", "▼") if i > j else ("△", "▽")
    sign = "●" if i == j else "=" if value == own else better if value > own else worse
    return f"{100 * value:.2f} {sign}"


def _change(upgrade: "Upgrade") -> str:
    """Returns the gain of new/old over old/old with its sign."""
    if upgrade.new_old is None:
        return "not comparable"
    gain = 100 * (upgrade.new_old - upgrade.old_old)
    return f"{gain:+.2f} {'▲' if gain > 0 else '▼'}"


def _scores(scores: "UpgradeScores") -> list[str]:
    """Returns the P-scores and the values that they are computed from; dashes for missing ones."""
    values = scores.scores
    by_independent = " (independent)" if scores.old_old_of.startswith("independent ") else ""
    return [
        *([f"{v:.2f}" for v in (values.up, values.comp, values.one)] if values else ["–"] * 3),
        f"{100 * scores.old_old:.2f}{by_independent}",
        maybe(scores.independent, digits=2),
    ]
