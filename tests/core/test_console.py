"""Texts of other people cannot control the terminal, and are exact in JSON."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.panel import Panel
from rich.text import Text

import nobackfill as nb
from nobackfill.core.console import PlainConsole, visible
from nobackfill.core.page import Page, Section, Table
from nobackfill.core.terminal import print_notes, print_page, print_table
from nobackfill.report.markdown import render_markdown
from nobackfill.vectors.space import Space

SOURCE = Path(nb.__file__).parent
CONTROLS = (
    "\x00", "\a", "\b", "\t", "\v", "\f", "\r", "\x1b", "\x1b]0;title\a", "\x7f", "\x80", "\x9b31m",
    "\u061c", "\u200e", "\u200f", "\u2028", "\u202a", "\u202e", "\u2066", "\u2069", "\ufeff",
    "\ud800",
    "\U000e0041",
)  # fmt: skip
UGLY = "sku[bold]7[/] :warning: \x1b[2J\u202e\x9b31m\r\nNEXT"
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def console(request):
    """A console, and what it has printed."""
    return PlainConsole(
        file=io.StringIO(), force_terminal=request.param, color_system=None, width=200
    )


def printed(console):
    return console.file.getvalue()


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_are_written_as_in_python(control):
    shown = visible(f"a{control}b")
    assert RAW.search(shown) is None
    assert f"'{shown}'".encode().decode("unicode_escape") == f"'a{control}b'"


@pytest.mark.parametrize("text", ["plain", "ß 東京 עברית", "👩\u200d👧", "", "a\\b"])
def test_other_texts_are_as_they_were(text):
    assert visible(text) == text


def test_a_new_line_is_one_of_ours_or_none():
    assert visible("a\nb") == "a\\nb"
    assert visible("a\nb\r", lines=True) == "a\nb\\r"


def test_a_name_cannot_be_two_lines(console):
    """An id with a new line would look like another row, or another sentence."""
    name = "a\nb"
    table = Table((name, "n"), [[name, name], ["x", "1\n2"]], frozenset("n"), caption=name)
    print_table(replace(table, broken=frozenset("n")), console)
    assert [line.split() for line in printed(console).splitlines()] == [
        ["a\\nb", "n"], ["a\\nb", "a"], ["b"], ["x", "1"], ["2"],
    ]  # fmt: skip
    print_page(Page(name, [name], [Section(name, "ours\nours", [table])] * 2), console)
    print_notes([name], console)
    assert "a\nb" not in printed(console).replace(" ", "").partition("ours")[2]
    assert "ours\nours" in printed(console)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("wrap", [str, Text, lambda text: Panel(Text(text))])
def test_nothing_raw_leaves_a_console(console, control, wrap):
    console.print(wrap(f"a{control}b"))
    assert RAW.search(printed(console)) is None


def test_markup_and_emoji_codes_are_text(console):
    console.print("sku[bold]7 a[/] :warning: [link=x]y")
    assert printed(console).strip() == "sku[bold]7 a[/] :warning: [link=x]y"


def test_pages_tables_and_notes_are_visible(console):
    table = Table((UGLY, "n"), [[UGLY, "12"]], frozenset("n"), caption=UGLY)
    print_page(Page(UGLY, [UGLY], [Section(UGLY, UGLY, [table])] * 2), console)
    print_table(table, console)
    print_notes([UGLY], console)
    shown = printed(console)
    assert RAW.search(shown) is None
    assert shown.count(visible(UGLY)) >= 8


def test_markdown_is_visible():
    table = Table((UGLY,), [[UGLY]])
    page = Page("t", [UGLY], [Section(UGLY, UGLY, [table])], notes=[UGLY])
    assert RAW.search(render_markdown(page)) is None


def test_no_other_console_is_made():
    """One place decides what is printed."""
    made = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(
            r"(?<!Plain)Console\((?!Console)|rich\.print|\brich import print", path.read_text()
        )
    ]
    assert made == []
    printing = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(print|typer\.echo|sys\.std(out|err)\.write)\(", path.read_text(), re.M)
    ]
    # JSON, the traceback of a bug, and the version
    assert sorted(printing) == ["cli/exit_codes.py", "cli/main.py", "cli/output.py"]


ITEMS, CLASSES = 60, 12
IDS = np.array([f"{UGLY}{number}" for number in range(ITEMS)])
LABELS = np.array([f"{UGLY}class {number % CLASSES}" for number in range(ITEMS)])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Files whose ids, labels, columns, values and names are hostile."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    means = random.normal(size=(CLASSES, 8))[np.arange(ITEMS) % CLASSES]
    for seed, name in enumerate(("old", "n\x1b[31m\u202ew[b]")):
        rows = np.float32(means + 0.7 * random.normal(size=(ITEMS, 8)))
        space = Space(dim=8, weights=f"model{UGLY}{seed}")
        columns = {"shop\x1b[31m": LABELS, "camera": np.array([UGLY, "b", "c"] * 20)}
        nb.Vectors(IDS, rows, LABELS, columns=columns, space=space).save(folder / f"{name}.parquet")
    return folder


NEW = "n\x1b[31m\u202ew[b].parquet"
PAIR = ("--old", "old.parquet", "--new", NEW, "--device", "cpu")
COMMANDS = [
    ("evaluate", *PAIR, "--flips", "1", "--slice", "camera", "--smallest", "1"),
    ("evaluate", *PAIR, "--slice", "shop\x1b[31m", "--smallest", "1", "--report", "page.html"),
    ("evaluate", *PAIR, "--label", "labl\x1b[31m"),
    ("evaluate", "--old", "old.parquet", "--new", "\x1b[2Jnone.parquet"),
    ("evaluate", "--odd\x1b[31m"),
    ("evaluate", *PAIR, "--protocol", "\x1b[31m"),
    ("assess", *PAIR, "--epochs", "1"),
    ("fit", *PAIR, "--epochs", "1", "-o", "head\x1b[31m"),
    ("matrix", "old.parquet", NEW, "--device", "cpu"),
    ("gallery", "status", "flat://old.parquet"),
    ("gallery", "status", f"flat://{NEW}"),
    ("gallery", "search", "flat://old.parquet", "--queries", "old.parquet", "-k", "2"),
    ("gallery", "check", "flat://old.parquet", "--model", NEW),
    ("gallery", "plan", "flat://old.parquet", *PAIR[:-2], "-o", "plan\x1b[31m.parquet"),
    ("gallery", "status", "flat://old.parquet?x\x1b[31m=1"),
    ("datasets", "check", "cub200\x1b[31m", "."),
    ("datasets", "check", "folder", "no\x1b[31m"),
    ("train", "no\x1b[31m.toml"),
    ("embed", "no\x1b[31m", "old.parquet", "-o", "out.parquet"),
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments", COMMANDS, ids=lambda words: " ".join(words[:2]).encode().hex()[:12]
)
def test_no_command_prints_what_controls_a_terminal(hostile, monkeypatch, command, arguments):
    monkeypatch.chdir(hostile)
    code, output, errors = command(*arguments)
    assert RAW.search(output + errors) is None
    assert not re.search(r"^\s*NEXT", output + errors, re.M)  # no name begins a line
    assert "Traceback" not in errors
    assert code in (0, 1, 2, 3)


def test_ids_are_exact_in_json(hostile, monkeypatch, command):
    monkeypatch.chdir(hostile)
    search = ("gallery", "search", "flat://old.parquet", "--queries", "old.parquet", "-k", "1")
    code, output, _ = command(*search, "--json")
    assert code == 0
    assert {row["ids"][0] for row in json.loads(output)["found"]} == set(IDS.tolist())
    code, output, _ = command(*search)
    assert {"sku[bold]7[/]", ":warning:"} <= set(output.split())
    assert "\\x1b[2J" in output
    assert "\\r\\nNEXT" in output
