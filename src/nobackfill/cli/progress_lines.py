"""Lines of progress: live on a terminal, a plain line from time to time elsewhere."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nobackfill.cli.quiet import is_quiet
from nobackfill.core.console import PlainConsole, visible
from nobackfill.core.numbers import duration
from nobackfill.core.steps import Number

DELAY = 2.0  # seconds before a live line appears
FIRST = 3.0  # seconds before the first plain line
EVERY = 10.0  # seconds between plain lines; more in a job of many minutes
LONGEST_PAUSE = 60.0
BAR = 12  # characters
console = PlainConsole(stderr=True)


@dataclass
class Line:
    """A job: its step, the amount done, and the time since it began.

    Attributes:
        name: Name of the current step.
        done: Amount that is done.
        total: Whole amount; None if it is unknown.
        unit: Plural noun for the counted things; empty if `done` and `total` are not counts.
        note: Further words.
        first: Amount that was done when the step began.
        begun: Time at which the step began.
        has_ended: Whether the job is over.
    """

    name: str
    done: Number = 0
    total: Number | None = None
    unit: str = ""
    note: str = ""
    first: Number = 0
    begun: float = field(default_factory=monotonic)
    has_ended: bool = False

    def show(
        self,
        name: str,
        done: Number = 0,
        total: Number | None = None,
        unit: str = "",
        note: str = "",
    ) -> None:
        """Sets the step; its time begins anew if it is another step."""
        if self.total is None and name == self.name:
            self.first = 0  # whose total is known only now
        elif total != self.total or done < self.done or (total is None and name != self.name):
            self.first, self.begun = done, monotonic()
        self.name, self.done, self.total, self.unit, self.note = name, done, total, unit, note

    def advance(self, *, note: str = "") -> None:
        """Adds one to what is done."""
        self.done, self.note = self.done + 1, note

    def end(self, *, note: str = "") -> None:
        """Ends the job."""
        self.done, self.note, self.has_ended = self.total or self.done, note, True

    def amount(self) -> str:
        """How much is done, in words; empty if that is unknown.

        Example:
            >>> Line("searching", 50, 2000, "queries").amount(), Line("fitting", 0.5, 1).amount()
            ('50/2,000 queries', '50 %')
        """
        if self.total is None:
            return ""
        if self.unit:
            return f"{self.done:,.0f}/{self.total:,.0f} {self.unit}"
        return f"{100 * self.done / max(self.total, 1e-9):.0f} %"

    def time(self) -> str:
        r"""The time left, or the time so far if that is unknown.

        .. math::
            t \cdot \frac{total - done}{done - first}

        where :math:`t` is the time since the step began with the amount `first`.
        """
        passed, gained = monotonic() - self.begun, self.done - self.first
        if self.has_ended or (self.total is not None and self.done >= self.total):
            return ""
        if self.total is None or gained <= 0:
            return f"{duration(round(passed))} so far" if passed >= 1 else ""
        return f"{duration(round(passed * (self.total - self.done) / gained))} left"

    def text(self) -> str:
        """A plain line.

        Example:
            >>> Line("old", 6, 12, note="loss 0.5", has_ended=True).text()
            'old: 50 %, loss 0.5'
        """
        parts = [part for part in (self.amount(), self.time(), self.note) if part]
        return f"{self.name}: {', '.join(parts)}" if parts else self.name

    def live(self, width: int, *, name_width: int, is_ascii: bool) -> Text:
        """A line of at most `width` characters with a bar."""
        full, rest = ("#", "-") if is_ascii else ("━", "━")
        text = Text(f"{visible(self.name):<{name_width}} ")
        if self.total is not None:
            cells = round(BAR * min(1.0, self.done / max(self.total, 1e-9)))
            text.append(full * cells, "green").append(rest * (BAR - cells), "dim").append(" ")
        text.append("  ".join(part for part in (self.amount(), self.time()) if part))
        if self.note:
            text.append(visible(f"  {self.note}"), "dim")
        text.truncate(width, overflow="ellipsis")
        return text


@dataclass
class Lines:
    """Lines of all jobs of a command.

    Attributes:
        delay: Seconds before live lines appear.
        stays: Whether lines stay when their jobs have ended.
        console: Console that the lines are written to.
        all: The lines.
        begun: Time at which they began.
    """

    delay: float
    stays: bool
    console: Console = console
    all: list[Line] = field(default_factory=list)
    begun: float = field(default_factory=monotonic)

    def add(self, line: Line) -> Line:
        """Adds a line and returns it."""
        self.all.append(line)
        return line

    def render(self) -> Group:
        """All lines of a terminal."""
        if monotonic() - self.begun < self.delay:
            return Group()
        width, is_ascii = self.console.width, self.console.options.ascii_only
        name_width = max((len(line.name) for line in self.all), default=0)
        return Group(
            *(line.live(width, name_width=name_width, is_ascii=is_ascii) for line in self.all)
        )


@contextmanager
def showing(
    *, delay: float | None = None, stays: bool = False, is_shown: bool = True
) -> Iterator[Lines]:
    """Shows lines while a job runs, unless the command is quiet.

    Args:
        delay: Seconds before live lines appear; by default `DELAY`.
        stays: Whether lines stay when their jobs have ended.
        is_shown: Whether anything is shown.
    """
    lines = Lines(DELAY if delay is None else delay, stays, console)
    display: AbstractContextManager[object]
    if not is_shown or is_quiet():
        display = nullcontext()
    elif console.is_terminal:
        display = Live(
            get_renderable=lines.render, console=console, transient=not stays, refresh_per_second=8
        )
    else:
        display = plain(lines)
    with display:
        yield lines


@contextmanager
def plain(lines: Lines) -> Iterator[None]:
    """Prints a line of each running job from time to time, and where they stay, one at its end."""
    is_over, printed = threading.Event(), set[int]()

    def print_new() -> None:
        for number, line in enumerate(lines.all):
            if number not in printed and (not line.has_ended or lines.stays):
                console.print(line.text(), soft_wrap=True)
                printed.update({number} if line.has_ended else ())

    def print_from_time_to_time() -> None:
        pause = FIRST
        with suppress(OSError, SystemExit):  # a broken pipe, for which rich raises SystemExit
            while not is_over.wait(pause):
                print_new()
                pause = min(LONGEST_PAUSE, max(EVERY, (monotonic() - lines.begun) / 10))

    printer = threading.Thread(target=print_from_time_to_time, daemon=True)
    printer.start()
    try:
        yield
    finally:
        is_over.set()
        printer.join()
    if lines.stays:
        print_new()
