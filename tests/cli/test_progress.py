"""Progress with the time left on a terminal, plain lines in a pipe, nothing with --quiet."""

import io
from itertools import pairwise
from time import sleep

import pytest

from nobackfill.cli import progress, progress_lines, quiet
from nobackfill.cli.progress_lines import Line
from nobackfill.core.console import PlainConsole
from nobackfill.core.steps import Step


@pytest.fixture
def shown(monkeypatch):
    """Makes progress fast; returns a function of what was written on a terminal or a pipe."""

    def on(*, terminal, width=80):
        console = PlainConsole(
            file=io.StringIO(), width=width, force_terminal=terminal, color_system=None
        )
        monkeypatch.setattr(progress_lines, "console", console)
        return console.file.getvalue

    monkeypatch.setattr(progress_lines, "DELAY", 0.0)
    monkeypatch.setattr(progress_lines, "FIRST", 0.05)
    monkeypatch.setattr(progress_lines, "EVERY", 0.05)
    monkeypatch.setattr(progress_lines, "LONGEST_PAUSE", 0.05)
    return on


def search(queries=40, pause=0.02):
    with progress.searching_progress() as update:
        for done in range(queries + 1):
            update(done, queries)
            sleep(pause)


def test_a_pipe_gets_a_plain_line_from_time_to_time(shown):
    written = shown(terminal=False)
    search()
    lines = written().splitlines()
    assert 2 <= len(lines) <= 20  # of 41 steps
    assert all(line.startswith("searching: ") for line in lines)
    assert "\x1b" not in written()
    counts = [int(line.split()[1].split("/")[0]) for line in lines]
    assert all(before < after for before, after in pairwise(counts))
    assert lines[-1].split(", ")[0] == f"searching: {counts[-1]}/40 queries"
    assert all(line.endswith(" s left") for line in lines[1:] if "40/40" not in line)
    assert any(line.endswith(" s left") for line in lines)


def test_a_job_of_less_than_three_seconds_prints_nothing_into_a_pipe(shown, monkeypatch):
    assert progress_lines.FIRST == 0.05
    monkeypatch.setattr(progress_lines, "FIRST", 3.0)
    written = shown(terminal=False)
    search(queries=3)
    assert written() == ""


def test_a_terminal_shows_the_time_left_and_leaves_nothing_behind(shown):
    written = shown(terminal=True)
    search()
    assert "queries" in written()
    assert " left" in written()
    assert written().endswith("\x1b[2K")  # the line is erased


def test_quiet_shows_nothing(shown, monkeypatch):
    monkeypatch.setattr(quiet, "_is_quiet", True)
    for terminal in (True, False):
        written = shown(terminal=terminal)
        search(queries=10)
        with progress.training_progress() as lines:
            lines.add(Line("old")).end(note="loss 1.0")
        assert written() == ""


def test_a_job_that_says_nothing_is_shown_with_its_time_so_far(shown, monkeypatch):
    written = shown(terminal=False)
    with progress.doing("preparing") as show_step:
        show_step("drawing the page")
        sleep(0.2)
    assert "drawing the page" in written().splitlines()
    line = Line("drawing", begun=progress_lines.monotonic() - 75)
    assert line.text() == "drawing: 75 s so far"


def test_the_end_of_a_training_is_written_once(shown):
    written = shown(terminal=False)
    with progress.training_progress() as lines:
        old, new = lines.add(Line("old")), lines.add(Line("new"))
        old.end(note="epoch 2/2  loss 0.500")
        sleep(0.3)
        new.end(note="epoch 2/2  loss 0.250")
    ends = [line for line in written().splitlines() if "epoch 2/2" in line]
    assert ends == ["old: epoch 2/2  loss 0.500", "new: epoch 2/2  loss 0.250"]


def test_other_processes_are_silent(shown):
    written = shown(terminal=False)
    with progress.training_progress(is_main=False) as lines:
        lines.add(Line("old")).end(note="epoch 2/2")
    assert written() == ""


def test_the_time_left_follows_from_the_speed_of_the_step():
    line = Line("searching")
    line.show("searching", 0, 100, "queries")
    line.begun -= 10
    line.show("searching", 25, 100, "queries")
    assert line.time() == "30 s left"
    assert line.amount() == "25/100 queries"
    line.show("fitting", 1, 4)  # another step: its speed is not known yet
    assert line.time() == ""
    line.begun -= 10
    line.show("fitting", 3, 4)
    assert (line.amount(), line.time()) == ("75 %", "5 s left")


def test_epochs_of_an_earlier_start_do_not_count_as_fast():
    line = Line("new", total=100)
    line.begun -= 10
    line.done, line.first = 60, 50  # ten batches in ten seconds
    assert line.time() == "40 s left"


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_live_line_fits_the_terminal(width, is_ascii):
    line = Line("prototype_alignment", 12, 100, note="epoch 11/12  loss 1.110  1,583 images/s")
    text = line.live(width, name_width=19, is_ascii=is_ascii).plain
    assert len(text) <= width
    assert text.startswith("prototype_alignment ")
    assert text.isascii() == (is_ascii and width == 120)  # an ellipsis stands for the rest


def test_a_step_is_a_text_for_callbacks_that_know_nothing_else():
    step = Step("searching", 1, 4, "queries")
    assert step == "searching"
    assert (step.done, step.total, step.unit) == (1, 4, "queries")


def test_nobody_needs_to_read(monkeypatch, shown):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    shown(terminal=False)
    monkeypatch.setattr(progress_lines, "console", PlainConsole(file=Closed()))
    search(queries=10)
