from xml.etree import ElementTree

import pytest

from nobackfill.bench.compared import Compared
from nobackfill.bench.curves import curves, values_of
from nobackfill.bench.plane import far_apart
from nobackfill.bench.studies import STUDIES


def test_the_default_has_its_place_among_the_values_of_every_option():
    found = values_of(
        ["prototype_alignment", "ndpp", "ndpp:neighbors=500", "ndpp:neighbors=1",
         "ndpp:old_strength=0.4"]
    )  # fmt: skip
    assert {option: list(its.items()) for option, its in found.items()} == {
        "neighbors": [(1, "ndpp:neighbors=1"), (100, "ndpp"), (500, "ndpp:neighbors=500")],
        "old_strength": [(0.01, "ndpp"), (0.4, "ndpp:old_strength=0.4")],
    }


@pytest.mark.parametrize("name", [name for name, one in STUDIES.items() if one.is_search])
def test_a_search_can_be_drawn(name, lines_of):
    ways = STUDIES[name].ways
    lines = [
        line for way in ways for line in lines_of(way, {0: (0.4, 0.5, 0.6), 1: (0.4, 0.5, 0.7)})
    ]
    picture = ElementTree.fromstring(curves(Compared.of(lines), ways))
    words = "".join(picture.itertext())
    for option in values_of(ways):
        assert option in words


def test_a_single_seed_can_be_drawn_too(lines_of):
    ways = ("prototype_alignment", "ndpp", "ndpp:neighbors=1")
    lines = [line for way in ways for line in lines_of(way, {0: (0.4, 0.5, 0.6)})]
    assert curves(Compared.of(lines), ways).startswith("<?xml")


def test_a_name_that_would_cover_another_is_left_out():
    places = {"a": (0.0, 0.0), "b": (0.3, 0.03), "c": (10.0, 1.0), "d": (0.3, 0.5)}
    assert far_apart(places) == {"a", "c", "d"}  # 3 % in both directions is near
    assert far_apart({"a": (1.0, 2.0)}) == {"a"}
    assert far_apart({"a": (1.0, 2.0), "b": (1.0, 2.0)}) == {"a"}
