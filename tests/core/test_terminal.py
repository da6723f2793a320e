"""A page on the terminal has its conclusion first, then its tables, what is missing, and notes."""

import io
import textwrap
from dataclasses import replace

import pytest

from nobackfill.core.console import PlainConsole
from nobackfill.core.page import Figure, Page, Picture, Section, Table
from nobackfill.core.terminal import _height, _print_section, print_page, print_table


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
    console = PlainConsole(
        file=file, width=width, color_system=colors, force_terminal=colors is not None
    )
    (print_page if isinstance(page, Page) else print_table)(page, console)
    return file.getvalue()


def test_the_verdict_comes_first_then_numbers_then_what_was_not_measured():
    page = Page(
        "T",
        ["Do [this].", "And that."],
        [NUMBERS],
        "compatible",
        ["speed: no time", "x"],
        ["no [b] space"],
    )
    assert [line.rstrip() for line in printed(page).splitlines()] == [
        "Compatible: Do [this]. And that.",
        "",
        "A [b]caption",
        "pair [a]          mAP  compatible",
        "old              1.00  no",
        "a [red]new one  10.00  yes",
        "Percent of [red]everything[/].",
        "Not measured: speed; x.",
        "Note: no [b] space.",
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


WAYS = Table(
    ["way", "mAP", "Recall@1", "nDCG@10", "lose", "gain", "pays"],
    [["photographs/2019/summer/000123.jpg", *["12.34"] * 5, "yes"], ["a short name", *["1"] * 6]],
    frozenset({"mAP", "Recall@1", "nDCG@10", "lose", "gain"}),
)


@pytest.mark.parametrize(("width", "is_cut"), [(60, True), (80, False), (120, False)])
def test_a_table_fits_the_terminal_and_says_what_it_cuts(width, is_cut):
    console = PlainConsole(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_table(WAYS, console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].split()[1:] == [*["12.34"] * 5, "yes"]
    assert ("photographs/2019/summer/000123.jpg" in lines[1]) == (not is_cut)
    assert ("…" in lines[1]) == is_cut
    assert any("--json" in line for line in lines) == is_cut
    if is_cut:
        assert lines[1].startswith("photo")
        assert "123.jpg " in lines[1]


def test_a_file_has_no_width():
    assert "photographs/2019/summer/000123.jpg" in printed(WAYS, width=20)


def test_a_terminal_wraps_at_words_and_a_file_has_a_line_for_each_sentence():
    page = Page("T", ["word " * 40], verdict="compatible", notes=["word " * 40])
    console = PlainConsole(file=io.StringIO(), width=33, force_terminal=True, color_system=None)
    print_page(page, console)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 33
    assert text.count("word") == 80
    assert len(printed(page, width=33).splitlines()) == 2


@pytest.mark.parametrize("rows", [3, 40])
def test_notes_that_would_make_a_page_long_are_counted(rows):
    table = Table(["a"], [["x"]] * rows)
    notes = [f"note {number} " + "long " * 20 for number in range(30)]
    page = Page("T", ["S."], [Section("S", tables=[table])], "compatible", ["speed"], notes)
    lines = printed(page).splitlines()
    height = sum(len(textwrap.wrap(line, 80)) or 1 for line in lines)
    assert height <= max(25, rows + 11)
    shown = [line for line in lines if line.startswith("Note: note")]
    assert shown
    assert lines[-1] == f"Notes: {30 - len(shown)} more, under `notes` (--json)."


@pytest.mark.parametrize("caption", ["", "Flips"])
def test_the_height_of_a_section_is_the_number_of_lines_that_it_prints(caption):
    rows = [["top 1", "2"], ["top 5", "4"]]
    section = Section("", "A sentence that needs two lines here.", [Table(["k", "n"], rows)])
    section = replace(section, tables=[replace(section.tables[0], caption=caption)])
    console = PlainConsole(file=io.StringIO(), width=20, force_terminal=True)
    _print_section(section, console, with_title=False)
    assert _height(section, console) == console.file.getvalue().count("\n")


def test_pictures_are_described():
    cell = (Picture("data:,", "a cup", True), Picture("data:,", "a hat"))
    assert "a cup, a hat" in printed(Table(["id", "found"], [["1", cell]]))
