"""A page on the terminal has the tables and sentences of the page, and its conclusion last."""

import io

import pytest
from rich.console import Console

from nobackfill.core.page import Figure, Page, Picture, Section, Table
from nobackfill.core.terminal import print_page, print_table


def no_figure():
    raise AssertionError("the terminal shows no figure")


NUMBERS = Section(
    "The numbers",
    "Percent of [red]everything[/].",
    tables=[
        Table(
            ["pair [a]", "mAP", "compatible", "secret"],
            [["old", "1.00", "no", "x"], ["a [red]new one", "10.00", "yes", "y"]],
            frozenset({"mAP"}),
            strong=1,
            caption="A [b]caption",
            details=frozenset({"secret"}),
        )
    ],
    figures=[Figure(no_figure, "F", "not shown")],
)


def printed(page, *, width=80, colors=None):
    file = io.StringIO()
    console = Console(
        file=file, width=width, color_system=colors, force_terminal=colors is not None
    )
    (print_page if isinstance(page, Page) else print_table)(page, console)
    return file.getvalue()


def test_the_conclusion_comes_after_the_tables_and_the_notes():
    page = Page(
        "T", ["Do [this].", "And that."], [NUMBERS], "compatible", ["speed"], ["no [b] space"]
    )
    assert [line.rstrip() for line in printed(page).splitlines()] == [
        "A [b]caption",
        "pair [a]          mAP  compatible",
        "old              1.00  no",
        "a [red]new one  10.00  yes",
        "Percent of [red]everything[/].",
        "Note: no [b] space.",
        "Compatible: Do [this]. And that.",
    ]


def test_several_sections_have_titles_and_a_line_between_them():
    hidden = Section("Hidden", "Only on the page.", in_terminal=False)
    lines = printed(Page("T", [], [Section("One", "1"), hidden, Section("Two", "2")])).splitlines()
    assert lines == ["One", "1", "", "Two", "2"]


@pytest.mark.parametrize(
    ("cell", "color"),
    [("yes", 32), ("no", 31), ("undecided", 33), ("1.00 ▲", 32), ("1.00 ▼", 31), ("✗", 31)],
)
def test_words_and_signs_have_a_colour(cell, color):
    assert f"\x1b[{color}m{cell}" in printed(Table(["a", "b"], [["x", cell]]), colors="standard")
    assert "\x1b[" not in printed(Table(["a"], [[cell]]), colors="standard").split("\n")[1]


@pytest.mark.parametrize("verdict", ["compatible", "full backfill", "inconclusive"])
def test_every_verdict_can_be_printed(verdict):
    assert printed(Page("T", ["S."], verdict=verdict)) == f"{verdict.capitalize()}: S.\n"


@pytest.mark.parametrize("width", [10, 30, 80])
def test_numbers_are_never_cut(width):
    table = Table(["name", "numbers", "text"], [["n", "1,234 ▲", "a long text of many words"]],
                  frozenset({"numbers"}))  # fmt: skip
    out = printed(table, width=width)
    assert "1,234 ▲" in out
    assert "…" not in out
    assert set("a long text of many words".split()) <= set(out.split())


def test_pictures_are_described():
    cell = (Picture("data:,", "a cup", True), Picture("data:,", "a hat"))
    assert "a cup, a hat" in printed(Table(["id", "found"], [["1", cell]]))
