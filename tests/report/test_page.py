import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

from nobackfill.core.page import Figure, Page, Picture, Section, Table
from nobackfill.report.charts import heat_map, step_curves
from nobackfill.report.html import render_html
from nobackfill.report.maps import maps
from nobackfill.report.markdown import render_markdown
from nobackfill.report.svg import INK, PAPER, VARIABLES


class Reader(HTMLParser):
    """Every element with its attributes and the text that stands in it."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag, "elements are nested"

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **having):
        return [
            one
            for one in self.elements
            if one["tag"] == tag and all(one.get(key) == value for key, value in having.items())
        ]


def read(page):
    reader = Reader(render_html(page))
    assert not reader.open
    return reader


def figures():
    random = np.random.default_rng(0)
    return {
        "heat map": heat_map(random.random((3, 3)), ["a", "b", "c"], ["a", "b", "c"]),
        "curves": step_curves(
            {name: random.integers(0, 9, 50) for name in ("old", "new")}, np.arange(51.0), label="c"
        ),
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
    }


def test_every_figure_is_well_formed_svg_and_the_same_each_time():
    once, again = figures(), figures()
    for name, svg in once.items():
        assert ElementTree.fromstring(svg).tag.endswith("svg"), name
        assert svg == again[name], name


def test_the_heat_map_says_its_numbers_in_percent():
    svg = heat_map(np.array([[0.5, 0.1], [0.623, 0.7]]), ["old", "new"], ["old", "new"])
    assert ">62.3<" in svg


def test_figures_take_their_colours_from_the_page():
    for name, svg in figures().items():
        for color, variable in VARIABLES.items():
            assert svg.count(color) == svg.count(f"var({variable}, {color})"), name
    assert f"stroke: var(--ink, {INK})" in figures()["maps"]
    assert f"stroke: var(--card, {PAPER})" in figures()["heat map"]


def test_figures_share_no_id_and_lose_no_reference():
    ids = []
    for name, svg in figures().items():
        mine = re.findall(r' id="([^"]+)"', svg)
        assert set(mine) == set(re.findall(r'(?:href="|url\()#([^")]+)', svg)), name
        ids += mine
    assert ids
    assert len(ids) == len(set(ids))


def test_a_label_that_looks_like_markup_stays_a_label():
    label = 'fill: #1d2733 id="x" <b>'
    svg = step_curves({label: np.arange(9)}, np.arange(10.0), label="cos")
    texts = [element.text for element in ElementTree.fromstring(svg).iter()]
    assert label in texts


def test_a_figure_is_drawn_once_and_only_for_a_page_that_shows_it():
    drawn = []

    def draw():
        drawn.append(1)
        return "<svg></svg>"

    page = Page("T", [], [Section("S", figures=[Figure(draw, "Cosines", "They are high.")])])
    render_markdown(page)
    assert not drawn
    render_html(page)
    render_html(page)
    assert len(drawn) == 1


def test_a_figure_is_told_in_words():
    svg = figures()["heat map"]
    page = read(
        Page("T", [], [Section("S", figures=[Figure(lambda: svg, "Who & whom", 'a "b" < c')])])
    )
    (drawn,) = page.all("svg")
    assert (drawn["role"], drawn["aria-label"]) == ("img", 'a "b" < c')
    assert [one["text"] for one in page.all("title")] == ["T", "Who & whom"]
    assert page.all("figure")[0]["role"] == "group"
    assert page.all("figcaption")[0]["text"] == "Who & whom"
    assert page.all("details")[0]["text"] == 'In wordsa "b" < c'


def test_the_page_needs_nothing_but_itself():
    picture = Picture("data:image/png;base64,AA==", "a cup")
    sections = [
        Section(
            "Part",
            figures=[Figure(lambda svg=svg: svg, name, name) for name, svg in figures().items()],
        ),
        Section("Other", tables=[Table(["item"], [[(picture,)]])]),
    ]
    page = read(Page("Title", ["Do this."], sections))
    for element in page.elements:
        for key in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert element.get(key, "#").startswith(("#", "data:")), element
        assert not [key for key in element if key.startswith("on")], "no inline handlers"
    assert not re.search(r"@import|url\((?!#)", render_html(Page("Title", [])))
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; img-src data:;")


def test_all_text_is_escaped():
    bad = "<script>alert(1)</script>"
    page = Page(
        title=bad,
        summary=[bad],
        verdict=bad,
        sections=[
            Section(
                bad,
                bad,
                tables=[Table([bad], [[bad], [(Picture(bad, bad, True),)]], caption=bad)],
                figures=[Figure(lambda: "<svg></svg>", bad, bad)],
            )
        ],
        not_measured=[bad],
        made_of={bad: bad},
        version=bad,
    )
    html = render_html(page)
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 15


def test_cells_are_marked():
    table = Table(["model", "mAP", "compatible"], [["x", "1.0", "no"], ["y", "–", "yes"]],
                  frozenset({"mAP"}), strong=1)  # fmt: skip
    page = read(Page("T", [], [Section("S", tables=[table])]))
    assert [row.get("class") for row in page.all("tr")] == [None, None, "strong"]
    classes = {one["text"]: one["class"].split() for one in page.all("td")}
    assert "number" in classes["1.0"]
    assert "number" in classes["–"]
    assert "no" in classes["no"]
    assert "yes" in classes["yes"]
    assert not {"yes", "no", "number"} & set(classes["x"])


@pytest.mark.parametrize(("right", "sign"), [(True, "✓"), (False, "✗"), (None, "")])
def test_pictures_have_words_and_a_sign_beside_the_colour(right, sign):
    table = Table(["found"], [[(Picture("data:image/png;base64,AA==", "a cup", right),)]])
    page = read(Page("T", [], [Section("S", tables=[table])]))
    assert [one["alt"] for one in page.all("img")] == ["a cup"]
    assert page.all("td")[0]["text"].strip() == sign


@pytest.mark.parametrize("rows", [8, 9])
def test_long_tables_can_be_filtered(rows):
    table = Table(["n"], [[str(row)] for row in range(rows)])
    page = read(Page("T", [], [Section("S", tables=[table])]))
    assert len(page.all("input", type="search")) == (rows > 8)


@pytest.mark.parametrize("count", [3, 4])
def test_many_sections_get_a_table_of_contents(count):
    page = read(
        Page("T", [], [Section(f"Part {n}") for n in range(count)], not_measured=["Speed."])
    )
    links = {one["text"]: one["href"].removeprefix("#") for one in page.all("a")}
    if count == 3:
        assert not links
        return
    assert [*links] == [*(f"Part {n}" for n in range(count)), "What was not measured"]
    titles = {one["id"]: one["text"] for one in page.all("section")}
    for title, target in links.items():
        assert title in titles[target]


@pytest.mark.parametrize(
    ("verdict", "tone"), [("compatible", "yes"), ("not compatible", "no"), ("undecided", "open")]
)
def test_the_verdict_is_a_word_and_a_colour(verdict, tone):
    page = read(Page("T", ["Do this."], verdict=verdict))
    assert verdict in page.all("p", **{"class": "verdict"})[0]["text"]
    (box,) = page.all("div", **{"class": f"conclusion {tone}"})
    assert "Do this." in box["text"]


def test_a_page_without_a_verdict_shows_none():
    assert not read(Page("T", ["Do this."])).all("p", **{"class": "verdict"})


def test_says_what_it_was_made_of_and_what_was_not_measured():
    page = read(Page("T", [], not_measured=["Speed."], made_of={"old": "a1b2", "queries": "12"}))
    terms, values = ([one["text"] for one in page.all(tag)] for tag in ("dt", "dd"))
    assert dict(zip(terms, values, strict=True)) == {"old": "a1b2", "queries": "12"}
    assert "Speed." in page.all("section", id="not-measured")[0]["text"]
    assert "query/gallery" in page.all("footer")[0]["text"]
    assert not read(Page("T", [])).all("section")
