"""What a reader of a backfill plan should know: whether its order and its scores are worth much."""

from collections.abc import Mapping

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, in_points, paired_interval
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.gallery.planning.curve import Curve
from nobackfill.gallery.planning.order import random_order
from nobackfill.gallery.planning.simulate import Halves, cases, precision_when, scales_of


def order_notes(
    curves: Mapping[str, Curve], order: str, direction: str, agreed: bool, classes: int
) -> list[str]:
    """Whether the order is worth anything.

    Args:
        curves: Of each order that was measured.
        order: The one to write down.
        direction: What `planned` puts first.
        agreed: Whether both halves of the classes would put the same first.
        classes: Of queries, how many.
    """
    notes = []
    if classes < FEWEST_GROUPS:
        notes.append(
            f"no intervals: they need queries of at least {FEWEST_GROUPS} classes, and these are "
            f"of {classes}"
        )
    ahead = curves[order].ahead
    if ahead is not None and not ahead.low > 0:
        notes.append(
            f"the order `{order}` is not surely better than a random one: "
            f"{in_points(ahead.summary())} points of mAP, on average over all shares"
        )
    if order == "planned" and not agreed:
        notes.append(
            f"two halves of the classes would have other items first: that {direction} ones come "
            f"first here means little"
        )
    return notes


def bias_notes(search: SearchPlan, halves: Halves, seed: int) -> list[str]:
    """Whether cosines to new vectors run higher than to old ones, though they are of one space."""
    number = len(search.gallery_ids)
    half = cases({"random": random_order(number, seed=seed)}, (0.0, 0.5, 1.0), number)[2:]
    apart = precision_when(search, halves, half, scales_of(search, halves))
    as_they_are = precision_when(search, halves, half, None)
    assert search.query_labels is not None
    lost = paired_interval((apart - as_they_are)[0], search.query_labels.numpy(), seed=seed)
    if not lost.low > 0:
        return []
    return [
        f"cosines to old and new vectors mean different things, though they are of one space: "
        f"compared in deviations from strangers, a half-done gallery gives "
        f"{in_points(lost.summary())} points of mAP more (`--no-compatible` plans for that, "
        f"`MixedGallery` with `same_space=False` and `calibrate` searches so)"
    ]
