"""Progress of long work on the standard error: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_INTERVAL, _LATE_INTERVAL, _LATE = 5.0, 30.0, 60.0  # seconds between two lines: at first, and after a minute
_JOINERS = "\u200c\u200d"  # invisible, but needed by scripts and emoji
_bar_lock = threading.Lock()  # held by the one bar that a terminal has room for


class Bar:
    """Receives the progress of some work. This one shows nothing."""

    def update(self, done: float, figures: str = "", title: str = "") -> None:
        """Set the work done; `figures` stand beside the bar, `title` replaces the one before."""


class _TerminalBar(Bar):
    def __init__(self, title: str, total: int, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
            redirect_stdout=False,  # what a command prints may be piped on
            refresh_per_second=4,
        )
        self.task = self.progress.add_task(title, total=total, figures="")

    def update(self, done: float, figures: str = "", title: str = "") -> None:
        self.progress.update(self.task, completed=done, description=title or None, figures=figures)


class _LineBar(Bar):
    """Prints a line at the start, at the end, and at intervals."""

    def __init__(self, title: str, total: int, console: Console, clock: Callable[[], float]) -> None:
        self.title, self.total, self.console, self.clock = title, total, console, clock
        self.done, self.figures = 0.0, ""
        self.start = self.last_line = clock()
        self.first: tuple[float, float] | None = None  # time and work done at the first update
        self.line()

    def update(self, done: float, figures: str = "", title: str = "") -> None:
        """Print a line, if the last one is old enough."""
        now = self.clock()
        self.done, self.figures, self.title = done, figures, title or self.title
        self.first = self.first or (now, done)
        if now - self.last_line >= (_INTERVAL if now - self.start < _LATE else _LATE_INTERVAL):
            self.last_line = now
            self.line(self.remaining(now))

    def remaining(self, now: float) -> str:
        """Time that the rest takes at the pace so far; empty if unknown."""
        then, before = self.first or (now, self.done)
        if self.done <= before:
            return ""
        return f"{_duration((now - then) / (self.done - before) * (self.total - self.done))} left"

    def line(self, time: str = "") -> None:
        parts = [f"{self.title} {int(self.done)}/{self.total}".strip(), self.figures, time]
        say(" · ".join(part for part in parts if part), console=self.console)

    def end(self) -> None:
        self.line(f"took {_duration(self.clock() - self.start)}")


@contextmanager
def bar(
    title: str,
    total: int,
    show: bool = True,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Bar]:
    """Show the progress of work of `total` parts while the block runs; inside another bar, show nothing."""
    console = console or Console(stderr=True)
    if not show:
        yield Bar()
    elif not (console.is_terminal or console.is_jupyter) or console.is_dumb_terminal:
        lines = _LineBar(title, total, console, clock)
        try:
            yield lines
        finally:
            lines.end()
    elif not _bar_lock.acquire(blocking=False):
        yield Bar()
    else:
        with ExitStack() as stack:
            stack.callback(_bar_lock.release)
            terminal_bar = _TerminalBar(title, total, console)
            with suppress(LiveError):  # raised if the caller draws on this console
                stack.enter_context(terminal_bar.progress)
            yield terminal_bar if terminal_bar.progress.live.is_started else Bar()


def visible(text: object) -> str:
    """On one line: characters that are invisible, or control the terminal, become their escapes."""

    def escaped(c: str) -> str:
        return c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode()

    return "".join(map(escaped, str(text)))


def say(text: str, show: bool = True, console: Console | None = None) -> None:
    """Print one plain line at once."""
    if show:
        (console or Console(stderr=True)).print(visible(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def moment(text: str, show: bool = True, after: float = 1.0) -> Iterator[None]:
    """Print `text` if the block takes longer than `after` seconds."""
    timer = threading.Timer(after, say, (text, show))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
