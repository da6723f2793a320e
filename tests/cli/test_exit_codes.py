"""How a command ends: the exit code where output cannot be written, and what is said on stderr."""

import os
import signal
import subprocess
import sys
from functools import partial
from time import sleep

import pytest
import typer

from nobackfill.cli.exit_codes import exit_code_of
from nobackfill.cli.interrupts import CONTINUED, how_to_continue
from nobackfill.errors import DataError

VERDICT = """
import sys, typer
from nobackfill.cli import main
from nobackfill.cli.output import console, emit

def tell(way: str, code: int) -> None:
    if way == "rich":
        console.print("verdict")
    elif way == "json":
        emit({"verdict": code})
    elif way == "echo":
        typer.echo("verdict")
    elif way == "kept":
        sys.stdout.write("verdict")
    elif way == "error":
        raise typer.BadParameter("no such thing")
    elif way == "crash":
        raise ZeroDivisionError("a bug")
    raise typer.Exit(code)

main.app.command()(tell)
main.main()
"""  # a command that tells its verdict in one of the ways in which commands do
WAYS = ("rich", "json", "echo", "kept")
full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")


def tell(way, code, **streams):
    """Runs a command of its own process; returns its exit code and stderr."""
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONUNBUFFERED"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    done = subprocess.run(
        [sys.executable, "-c", VERDICT, "tell", way, str(code)],
        env=environment,
        text=True,
        **streams,
    )
    return done.returncode, done.stderr


@pytest.fixture
def unread():
    """A pipe whose reader has gone away."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("way", WAYS)
def test_a_verdict_that_is_read_is_the_exit_code(way):
    assert tell(way, 1) == (1, "")


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_goes_away_is_no_verdict(way, unread):
    assert tell(way, 0, stdout=unread) == (2, "")
    assert tell(way, 3, stdout=unread, stderr=unread) == (2, None)


@pytest.mark.parametrize("way", ["error", "crash"])
def test_nor_is_one_who_does_not_read_what_was_wrong(way, unread):
    assert tell(way, 0, stderr=unread)[0] == 2


@full
@pytest.mark.parametrize("way", WAYS[:3])
def test_a_full_disk_is_told_in_one_line(way):
    with open("/dev/full", "w") as out:
        code, err = tell(way, 1, stdout=out)
        assert tell(way, 1, stdout=out, stderr=out) == (2, None)
        assert tell("crash", 1, stderr=out)[0] == 2
    assert code == 2
    assert err == (
        "nobackfill: Cannot write the output: No space left on device. Free some space, or write "
        "to another place.\n"
    )


@full
def test_what_is_left_to_the_end_of_the_process_is_written_or_two():
    with open("/dev/full", "w") as out:
        assert tell("kept", 0, stdout=out)[0] == 2


def test_a_stream_that_is_closed_from_the_beginning_is_no_error():
    assert tell("rich", 1, preexec_fn=lambda: os.close(1), stdout=None) == (1, "")
    assert tell("rich", 1, preexec_fn=lambda: os.close(2), stderr=None)[0] == 1


def test_help_that_nobody_reads(unread):
    line = [sys.executable, "-m", "nobackfill", "embed", "--help"]
    done = subprocess.run(line, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "")


def ended_by(error):
    """The exit code of a command line that raises."""

    def raises():
        raise error

    return exit_code_of(raises)


def test_errors_are_two_and_told(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nobackfill", "train"])  # which was not stopped
    assert ended_by(DataError("wanted vectors")) == 2
    assert capsys.readouterr().err == "nobackfill: wanted vectors\n"
    assert ended_by(PermissionError(13, "Permission denied")) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "unexpected PermissionError" in err
    assert "Please report this" in err


def test_only_a_command_may_end_with_a_verdict():
    assert ended_by(SystemExit(1)) == 2
    app = typer.Typer(add_completion=False)

    @app.command()
    def asks() -> None:
        raise EOFError  # which typer takes for a user who aborts, and ends with 1

    assert exit_code_of(lambda: app(args=[])) == 2
    assert exit_code_of(lambda: None) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "recipe.toml", "-o", "run"], "with --resume"),
        (["demo"], "Run the same command again"),
        (["gallery", "pull", "flat://a.parquet"], "Run the same command again"),
        (["gallery", "backfill", "flat://a.parquet"], "Run the same command again"),
        (["bench", "quality"], "Finished runs are kept"),
        (["bench", "speed"], ""),
        (["gallery", "switch", "flat://a.parquet"], ""),
        (["evaluate", "--old", "train", "--new", "demo"], ""),
        (["train", "recipe.toml", "-o", "run", "--dry-run"], ""),
        ([], ""),
    ],
)
def test_who_stops_a_command_is_told_how_to_continue(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["nobackfill", *arguments])
    assert ended_by(KeyboardInterrupt()) == 130
    told = capsys.readouterr().err
    assert (says in told) if says else (told == "")
    assert told == (f"nobackfill: {how_to_continue(arguments)}\n" if says else "")


def test_commands_that_go_on_exist():
    from nobackfill.cli.main import LazyCommand, app

    top = typer.main.get_command(app)
    for words in CONTINUED:
        found = top
        for word in words:
            found = found.get_command(None, word)
            assert found is not None
            found = found.load() if isinstance(found, LazyCommand) else found


def test_ctrl_c_in_the_midst_of_a_training(tmp_path):
    (tmp_path / "recipe.toml").write_text('[data]\nname = "glyphs"\n[model]\nname = "small"\n')
    line = [sys.executable, "-m", "nobackfill", "train", "recipe.toml", "-o", "run"]
    sizes = ("data.train_classes=20", "data.test_classes=5", "data.side=16", "model.width=4")
    line += [word for one in (*sizes, "train.epochs=100000") for word in ("--set", one)]
    with subprocess.Popen(
        line,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # jobs may ignore it
    ) as process:
        try:
            while not (tmp_path / "run" / "state.pt").exists() and process.poll() is None:
                sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert err.endswith(f"nobackfill: {how_to_continue(['train'])}\n")
    assert "Traceback" not in err
