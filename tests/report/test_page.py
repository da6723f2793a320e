import xml.etree.ElementTree as ElementTree

import numpy as np

from nobackfill.report import Section, Table, render_page
from nobackfill.report.plots import heat_map, histograms, maps, pictures


def figures():
    random = np.random.default_rng(0)
    return {
        "heat map": heat_map(random.random((3, 3)), ["a", "b", "c"], ["a", "b", "c"]),
        "histograms": histograms({"old": random.random(50), "new": random.random(50)}, label="cos"),
        "maps": maps(
            {
                "old": {"points": random.random((6, 2)), "prototypes": random.random((2, 2))},
                "new": {
                    "points": random.random((6, 2)),
                    "prototypes": random.random((2, 2)),
                    "moved": random.random((2, 2)),
                },
            },
            np.array([0, 0, 0, 1, 1, 1]),
        ),
        "pictures": pictures([random.random((4, 4)) * 255] * 2, ["red", "blue"]),
    }


def test_every_figure_is_well_formed_svg_and_the_same_each_time():
    once, again = figures(), figures()
    for name, svg in once.items():
        assert ElementTree.fromstring(svg).tag.endswith("svg"), name
        assert svg == again[name], name


def test_the_heat_map_says_its_numbers_in_percent():
    svg = heat_map(np.array([[0.5, 0.1], [0.623, 0.7]]), ["old", "new"], ["old", "new"])
    assert ">62.3<" in svg


def test_the_page_needs_nothing_but_itself():
    svg = figures()["heat map"]
    page = render_page("Title", ["Do this."], [Section("Part", "Read so.", figures=[svg])])
    assert "<svg" in page
    assert "Do this." in page
    for outside in ("<script", "<link", 'src="', "@import", "url(http"):
        assert outside not in page


def test_text_is_escaped_and_cells_are_marked():
    table = Table(["model", "mAP", "compatible"], [["<b>", "1.0", "no"]], frozenset({"mAP"}), 0)
    page = render_page("T", [], [Section("S", table=table)])
    assert "&lt;b&gt;" in page
    assert '<td class="number">1.0</td>' in page
    assert '<td class=" no">no</td>' in page
    assert 'class="strong"' in page
