"""Ids and texts are cut so that people can still tell them apart."""

import pytest

from nobackfill.core.short_names import LONGEST, LONGEST_ID, common_folder, short_id, shorten


def test_long_texts_are_cut():
    assert shorten("x" * LONGEST) == "x" * LONGEST
    cut = shorten("x" * (LONGEST + 1))
    assert (len(cut), cut[-1]) == (LONGEST, "…")
    assert shorten("  a \n\t b  ") == "a b"
    assert shorten("") == ""


@pytest.mark.parametrize(
    "ids", [[], ["a/b/1.jpg"], ["a/b", "a/b"], ["item 1", "item 2"], [1, 12], ["a/1", "b/1"]]
)
def test_where_no_folder_is_shared_none_is(ids):
    assert common_folder(ids) == ""


def test_a_folder_is_whole_or_not_at_all():
    """What begins alike within a name stays: it would tell half of it."""
    assert common_folder(["birds/owl_1.jpg", "birds/owl_2.jpg"]) == "birds/"
    assert common_folder(["birds/a", "birdsong/a"]) == ""
    assert common_folder(["a/b", "a/b/c"]) == "a/"


def test_long_ids_are_cut_in_the_middle_so_that_both_ends_tell_them_apart():
    assert short_id("x" * LONGEST_ID) == "x" * LONGEST_ID
    name = "189.Red_bellied_Woodpecker/Red_Bellied_Woodpecker_0114_181092.jpg"
    cut = short_id(name)
    begin, end = cut.split("…")
    assert len(cut) == LONGEST_ID
    assert name.startswith(begin)
    assert name.endswith(end)
    assert abs(len(begin) - len(end)) <= 1
    assert short_id(7) == "7"
    assert short_id("two\nlines") == "two lines"
