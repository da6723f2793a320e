"""What `--help` shows of every command is what was written: no word is taken for markup."""

import pytest
import typer
from rich.text import Text

from nobackfill.cli.main import app


def commands_below(command, *words):
    """All commands, and by which words each is called."""
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands_below(command.get_command(None, name), *words, name)


COMMANDS = dict(commands_below(typer.main.get_command(app)))


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
        (["evalute"], "'evaluate'"),
        (["gallery", "stats"], "'status'"),
        (["evaluate", "--pair", "x"], "--pairs"),
        (["assess", "--lable", "x"], "--label"),
    ],
)
def test_a_typo_gets_a_suggestion(nobackfill, words, meant):
    code, _, err = nobackfill(*words)
    assert code == 2
    assert meant in err


def test_what_is_looked_for():
    assert Text.from_markup("whose [data] is taken").plain == "whose  is taken"
    assert len(COMMANDS) > 20
