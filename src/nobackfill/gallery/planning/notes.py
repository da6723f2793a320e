"""Remarks on a backfill plan: how much its order and its scores are worth."""

from collections.abc import Mapping

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, in_points, paired_interval
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.gallery.planning.curve import Curve
from nobackfill.gallery.planning.order import random_order
from nobackfill.gallery.planning.simulate import Halves, cases, precision_when, scales_of


def order_notes(
    curves: Mapping[str, Curve], order: str, direction: str, agreed: bool, classes: int
) -> list[str]:
    """Remarks on the order of a plan; `agreed` if both halves of the classes chose `direction`."""
    notes = []
    if classes < FEWEST_GROUPS:
        notes.append(
            f"no intervals: they require queries of at least {FEWEST_GROUPS} classes, and these "
            f"are of {classes}"
        )
    ahead = curves[order].ahead
    if ahead is not None and not ahead.low > 0:
        notes.append(
            f"the order `{order}` is not surely better than a random one: "
            f"{in_points(ahead.summary())} points of mAP, on average over all shares"
        )
    if order == "planned" and not agreed:
        notes.append(
            f"two halves of the classes would put other items first: that {direction} ones come "
            f"first here means little"
        )
    return notes


def bias_notes(search: SearchPlan, halves: Halves, seed: int) -> list[str]:
    """Remarks on cosines to new vectors that are higher than to old ones, despite one space."""
    # Compare a half-done backfill with and without comparable scores.
    number = len(search.gallery_ids)
    half = cases({"random": random_order(number, seed=seed)}, (0.0, 0.5, 1.0), number)[2:]
    scaled = precision_when(search, halves, half, scales_of(search, halves))
    unscaled = precision_when(search, halves, half, None)
    assert search.query_labels is not None
    lost = paired_interval((scaled - unscaled)[0], search.query_labels.numpy(), seed=seed)
    if not lost.low > 0:
        return []
    return [
        f"cosines to old and new vectors mean different things, although they are of one space: "
        f"compared in deviations from unrelated pairs, a half-done gallery gives "
        f"{in_points(lost.summary())} points of mAP more (`--no-compatible` plans for that, "
        f"`MixedGallery` with `same_space=False` and `calibrate` searches so)"
    ]
