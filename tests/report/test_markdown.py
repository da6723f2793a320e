import re

from nobackfill.core.page import Figure, Page, Picture, Section, Table
from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown

PAGE = Page(
    title="Upgrade of the shop",
    summary=["Switch today.", "It gains 3 points."],
    verdict="compatible",
    sections=[
        Section(
            "The numbers",
            "In percent.",
            tables=[
                Table(
                    ["pair", "mAP"],
                    [["old/old", "52.1"], ["new/old", "55.3"]],
                    frozenset({"mAP"}),
                    strong=1,
                    caption="All queries",
                )
            ],
            figures=[Figure(lambda: "<svg></svg>", "Cosines", "Most lie above 0.5.")],
        )
    ],
    not_measured=["P-scores: no independent model."],
    made_of={"old vectors": "a1b2c3"},
)


def lines_of(table):
    text = render_markdown(Page("T", [], [Section("S", tables=[table])]))
    return [line for line in text.splitlines() if line.startswith("|")]


def test_says_the_same_as_the_html():
    markdown, html = render_markdown(PAGE), render_html(PAGE)
    for fact in (
        "Upgrade of the shop", "compatible", "Switch today.", "It gains 3 points.", "The numbers",
        "In percent.", "All queries", "old/old", "52.1", "55.3", "Cosines", "Most lie above 0.5.",
        "What was not measured", "P-scores: no independent model.", "old vectors", "a1b2c3",
        "query/gallery",
    ):  # fmt: skip
        assert fact in markdown, fact
        assert fact in html, fact


def test_reads_from_the_verdict_down():
    text = render_markdown(PAGE)
    assert text.startswith("# Upgrade of the shop\n\n**Verdict: compatible**\n\nSwitch today.\n\n")
    assert re.findall(r"^## (.*)", text, re.MULTILINE)[:2] == [
        "The numbers",
        "What was not measured",
    ]
    assert "\n\n\n" not in text
    assert text.endswith("again.\n")


def test_numbers_are_flush_right_and_the_strong_row_is_bold():
    assert lines_of(PAGE.sections[0].tables[0]) == [
        "| pair | mAP |",
        "| --- | ---: |",
        "| old/old | 52.1 |",
        "| **new/old** | **55.3** |",
    ]


def test_the_first_row_can_be_the_strong_one():
    assert lines_of(Table(["a"], [["x"], ["y"]], strong=0))[2:] == ["| **x** |", "| y |"]


def test_a_cell_can_not_break_its_row():
    assert lines_of(Table(["a|b", "c"], [["x|y", "1\n2"], ["", "z"]], strong=1))[2:] == [
        r"| x\|y | 1<br>2 |",
        "|  | **z** |",
    ]


def test_text_stays_text():
    (_, _, row) = lines_of(Table(["a"], [[r"<b> *x* [y](z) `w` \| p_up _v_ __init__"]]))
    assert row == r"| \<b> \*x\* \[y\](z) \`w\` \\\| p_up \_v\_ \_\_init\_\_ |"


def test_pictures_are_there_in_words():
    found = tuple(
        Picture("data:,", says, right)
        for says, right in (("a cup", True), ("a hat", False), ("a dog", None))
    )
    assert lines_of(Table(["found"], [[found]]))[2] == "| ✓ a cup, ✗ a hat, a dog |"


def test_nothing_is_said_of_what_is_not_there():
    text = render_markdown(Page("T", []))
    assert "Verdict" not in text
    assert "##" not in text
