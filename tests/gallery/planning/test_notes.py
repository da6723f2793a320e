"""What a plan says of its own order, note by note."""

import pytest

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, Interval
from nobackfill.gallery.planning.curve import Curve
from nobackfill.gallery.planning.notes import order_notes


def notes(*, low=0.1, order="planned", agreed=True, classes=FEWEST_GROUPS):
    """Of an order that is ahead of a random one by 20 points, from `low` on."""
    nothing, ahead = (Interval(*ends, 0.95, classes) for ends in ((0.0, 0.0, 0.0), (0.2, low, 0.3)))
    curve = Curve((0.0, 1.0), (0.5, 0.6), (nothing, nothing), ahead=ahead)
    return order_notes({order: curve}, order, "clear", agreed, classes)


def test_of_an_order_that_surely_pays_there_is_nothing_to_say():
    assert notes() == []


def test_intervals_want_enough_classes():
    (note,) = notes(classes=FEWEST_GROUPS - 1)
    assert note.startswith(
        f"no intervals: they require queries of at least {FEWEST_GROUPS} classes"
    )


@pytest.mark.parametrize("low", [0.0, -0.1, float("nan")])
def test_an_order_that_may_be_no_better_than_chance_says_so(low):
    (note,) = notes(low=low)
    assert note.startswith("the order `planned` is not surely better than a random one: +20.00")


def test_halves_that_disagree_are_told_where_their_choice_is_written_down():
    (note,) = notes(agreed=False)
    assert "that clear ones come first here means little" in note
    assert notes(agreed=False, order="informed") == []
