from xml.etree import ElementTree

import pytest

from nobackfill_bench.quality.figures import curves, far_apart
from nobackfill_bench.quality.paired import Compared

OPTIONS = {
    "old_strength": {0.01: "ndpp", 0.4: "ndpp:old_strength=0.4"},
    "neighbors": {1.0: "ndpp:neighbors=1", 100.0: "ndpp"},
}
WAYS = ("prototype_alignment", "ndpp", "ndpp:old_strength=0.4", "ndpp:neighbors=1")


@pytest.mark.parametrize("seeds", [1, 2])  # one has no interval
def test_every_option_has_a_panel_with_its_values(seeds, lines_of):
    numbers = {seed: (0.4, 0.5, 0.6 + 0.1 * seed) for seed in range(seeds)}
    lines = [line for way in WAYS for line in lines_of(way, numbers)]
    picture = ElementTree.fromstring(curves(Compared.of(lines), OPTIONS))
    words = " ".join(picture.itertext()).split()
    for option, its in OPTIONS.items():
        assert option in words
        assert {f"{value:g}" for value in its} <= set(words)


def test_a_name_that_would_cover_another_is_left_out():
    places = {"a": (0.0, 0.0), "b": (0.1, 0.01), "c": (10.0, 1.0), "d": (0.1, 0.5)}
    assert far_apart(places) == {"a", "c", "d"}  # 1 % in both directions is near
    assert far_apart({"a": (1.0, 2.0)}) == {"a"}
    assert far_apart({"a": (1.0, 2.0), "b": (1.0, 2.0)}) == {"a"}
