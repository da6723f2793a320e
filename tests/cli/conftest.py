"""A command as a person types it, run in this process."""

import sys

import pytest

from nobackfill.cli import main as cli


@pytest.fixture
def nobackfill(capsys, monkeypatch):
    """Runs a command; returns its exit code, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["nobackfill", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def command(nobackfill):
    """The same, where a file of tests has no command of its own."""
    return nobackfill
