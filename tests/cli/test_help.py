"""What `--help` shows of every command is what was written: no word is taken for markup."""

import subprocess
import sys

import pytest
import typer
from rich.text import Text

from nobackfill.cli.main import LazyCommand, app


def commands_below(command, *words):
    """All commands, and by which words each is called."""
    command = command.load() if isinstance(command, LazyCommand) else command
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands_below(command.get_command(None, name), *words, name)


TOP = typer.main.get_command(app)
COMMANDS = dict(commands_below(TOP))


def written(command):
    """What a command and its options are explained by, as a reader should see it."""
    shown = [option for option in command.params if not getattr(option, "hidden", False)]
    texts = [command.help, *(getattr(option, "help", None) for option in shown)]
    return [text.replace("\\[", "[") for text in texts if text]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_every_word_that_was_written(nobackfill, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "1000")  # a line for each option
    code, out, _ = nobackfill(*words, "--help")
    assert code == 0
    shown = " ".join(out.split())
    for text in written(COMMANDS[words]):
        assert " ".join(text.split()) in shown


def test_the_words_in_brackets_are_shown(nobackfill, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert "a recipe or run folder, whose [data] is used" in nobackfill("embed", "--help")[1]
    assert "run whose [data] has the items" in nobackfill("gallery", "backfill", "--help")[1]


FORMER = {  # an alias, and the name that every command has first
    "--ground-truth": "--pairs",
    "--group": "--label",
    "--group-leak": "--session",
    "--vectors": "--new",
    "-k": "--top",
}


def test_one_thing_has_one_name_in_every_command():
    options = [option.opts for command in COMMANDS.values() for option in command.params]
    for alias, name in FORMER.items():
        having = [names for names in options if alias in names]
        assert having, alias
        # `fit --group` is hidden, and its kind of supervision is "groups"
        assert {names[0] for names in having if names != ["--group"]} == {name}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["evalute"], "unknown command `evalute`. Did you mean `evaluate`?"),
        (["gallery", "stats"], "unknown command `stats`. Did you mean `status`?"),
        (["bench", "qualty"], "unknown command `qualty`. Did you mean `quality`?"),
        (["evaluate", "--pair", "x"], "unknown option `--pair`. Did you mean `--pairs`?"),
        (["assess", "--lable", "x"], "unknown option `--lable`. Did you mean `--label`?"),
        (["gallery", "plan", "x", "--quite"], "unknown option `--quite`. Did you mean `--quiet`?"),
        (["datasets", "chek"], "unknown action `chek`. Did you mean `check`?"),
        (["datasets", "--decode", "som"], "unknown value `som` of --decode. Did you mean `some`?"),
        (["frobnicate"], "unknown command `frobnicate`. See `nobackfill --help`."),
        (["gallery", "index", "-x"], "unknown option `-x`. See `nobackfill gallery index --help`."),
        (["evaluate", "--old", "x"], "missing option `--new`. See `nobackfill evaluate --help`."),
    ],
)
def test_a_typo_gets_a_suggestion(nobackfill, words, meant):
    code, out, err = nobackfill(*words)
    assert (code, out) == (2, "")
    assert err == f"nobackfill: {meant}\n"


def test_what_is_looked_for():
    assert Text.from_markup("whose [data] is taken").plain == "whose  is taken"
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("name", TOP.list_commands(None))
def test_the_line_of_a_command_is_the_first_of_its_own_help(name):
    assert TOP.get_command(None, name).help == COMMANDS[name,].help.splitlines()[0]


def test_help_loads_no_command():
    """A new process lists the commands without their files."""
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from nobackfill.cli.main import main\n"
        "main()"
    )
    call = [sys.executable, "-c", script, "--help"]
    process = subprocess.run(call, capture_output=True, text=True, check=True)
    assert all(f" {name} " in process.stdout for name in TOP.list_commands(None))
    loaded = process.stderr.split()
    assert {name for name in loaded if name.split(".")[0] == "nobackfill"} == {
        "nobackfill", "nobackfill.errors", "nobackfill.cli", "nobackfill.cli.main",
        "nobackfill.cli.exit_codes",
    }  # fmt: skip
    assert not {"torch", "numpy", "rich.markdown", "rich.traceback"} & set(loaded)


def test_help_leaves_no_placeholder_behind(nobackfill):
    nobackfill("--help")
    from rich.markdown import Markdown

    assert callable(Markdown)
