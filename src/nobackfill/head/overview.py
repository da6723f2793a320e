"""What `print` and a notebook show of a head."""

from typing import TYPE_CHECKING

from nobackfill.core.numbers import maybe
from nobackfill.core.page import Page, Section, Table
from nobackfill.evaluation.bootstrap import in_points

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead


def head_page(head: "CompatibleHead") -> Page:
    """What the head maps, its results on the held-out classes, and notes on the fit."""
    if not head.__sklearn_is_fitted__():
        return Page("A head for new vectors", [f"{head!r} is not fitted."])
    sections = [held_out_section(head)] if head.progress_.closed else []
    return Page("A head for new vectors", [f"{head!r}."], sections, notes=head.notes_)


def held_out_section(head: "CompatibleHead") -> Section:
    """Returns the mAP of each closed form, of the rounds that came after, and of stored vectors."""
    progress = head.progress_
    rows = [[f"{name}, closed form", "new/old", measured(value)]
            for name, value in progress.closed.items()]  # fmt: skip
    rows += [
        [f"{name}, best blend", "new/old", measured(value)]
        for name, value in progress.tried.items()
    ]
    if progress.kept > progress.closed[progress.start]:
        blend = f", {progress.blend:.0%} in a blend with procrustes" if progress.blend < 1 else ""
        rows.append([f"{progress.made_by}{blend}", "new/old", measured(progress.kept)])
    if progress.old_weight is not None and progress.both:
        both = progress.both[f"{progress.old_weight:g}"]
        name = f"both models, {progress.old_weight:g} of the old vector"
        rows.append([name, "new/old", measured(both)])
    if progress.old_old is not None:
        rows.append(["old vectors", "old/old", measured(progress.old_old)])
    rows += [
        [f"stored {name}", "new/new", measured(value)] for name, value in progress.stored.items()
    ]
    columns = ["vectors", "query/gallery", "mAP"]
    title = "Results on the held-out classes, in percent"
    return Section(
        title, f"{title}.{gain_sentence(head)}", [Table(columns, rows, frozenset({"mAP"}))]
    )


def gain_sentence(head: "CompatibleHead") -> str:
    """Returns how far new queries alone are above those of the old model, after a space."""
    gain = head.progress_.gain
    if not gain:
        return ""
    answer = {
        "better": "They are better than the old model's, beyond chance.",
        "worse": "They are worse than the old model's, beyond chance.",
        "as good": "The difference may be chance.",
        "unknown": "Too few classes were held out for an interval.",
    }[head.progress_.new_alone]
    return f" Mapped new queries gain {in_points(gain)} points of mAP over old ones. {answer}"


def measured(value: float) -> str:
    """Returns a fraction in percent, or a dash for NaN."""
    return maybe(None if value != value else value, digits=2)


def head_line(head: "CompatibleHead") -> str:
    """Returns the settings that were changed, and what the head maps if it is fitted."""
    text = f"CompatibleHead({head.settings()})"
    if not head.__sklearn_is_fitted__():
        return text
    network = head.fitted_network()
    extra = f" and {network.extra.linear.out_features} extra" if network.extra else ""
    several = f" for each of {', '.join(head.modalities_)}" if len(head.modalities_) > 1 else ""
    supervised = "without labels" if head.supervision_ == "none" else f"by {head.supervision_}"
    return (
        f"{text}, fitted {supervised}: {network.new_dim} to {network.old_dim}{extra} dimensions"
        f"{several}"
    )
