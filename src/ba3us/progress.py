"""How far a long work has come: a bar for people, plain lines for pipes. Always on the standard error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_OFTEN, _SELDOM, _AFTER = 5.0, 30.0, 60.0  # seconds between two lines, later on, and what later means
_JOINERS = "\u200c\u200d"  # unseen, but scripts and emoji are written with them
_drawing = threading.Lock()  # held by the one bar that a terminal has room for


class Bar:
    """What a work reports to. This one shows nothing."""

    def update(self, done: float, figures: str = "", title: str = "") -> None:
        """So much is done; `figures` are worth knowing, `title` takes the place of the one before."""


class _Drawn(Bar):
    """A bar in a terminal."""

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
        """Redraw."""
        self.progress.update(self.task, completed=done, description=title or None, figures=figures)


class _Lines(Bar):
    """A line at the start and at the end, and now and then between."""

    def __init__(self, title: str, total: int, console: Console, clock: Callable[[], float]) -> None:
        self.title, self.total, self.console, self.clock = title, total, console, clock
        self.done, self.figures = 0.0, ""
        self.start = self.said = clock()
        self.first: tuple[float, float] | None = None  # when and where the work went on from
        self.line()

    def update(self, done: float, figures: str = "", title: str = "") -> None:
        """Say so, if nothing was said for a while."""
        now = self.clock()
        self.done, self.figures, self.title = done, figures, title or self.title
        self.first = self.first or (now, done)
        if now - self.said >= (_OFTEN if now - self.start < _AFTER else _SELDOM):
            self.said = now
            self.line(self.left(now))

    def left(self, now: float) -> str:
        """How long the rest takes at the pace so far; nothing if that is not known."""
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
    """Show how far a work of `total` parts has come, while this lasts; inside another bar, show nothing."""
    console = console or Console(stderr=True)
    if not show:
        yield Bar()
    elif not (console.is_terminal or console.is_jupyter) or console.is_dumb_terminal:
        lines = _Lines(title, total, console, clock)
        try:
            yield lines
        finally:
            lines.end()
    else:
        with _drawn(title, total, console) as drawn:
            yield drawn


@contextmanager
def _drawn(title: str, total: int, console: Console) -> Iterator[Bar]:
    if not _drawing.acquire(blocking=False):
        yield Bar()
        return
    try:
        drawn = _Drawn(title, total, console)
        try:
            drawn.progress.start()
        except LiveError:  # the caller draws on this console
            yield Bar()
            return
        try:
            yield drawn
        finally:
            drawn.progress.stop()
    finally:
        _drawing.release()


def visible(text: object) -> str:
    """On one line: what can't be seen, or moves other text or the terminal, is written as its escape."""
    seen = (c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode() for c in str(text))
    return "".join(seen)


def say(text: str, show: bool = True, console: Console | None = None) -> None:
    """Write one plain line at once."""
    if show:
        (console or Console(stderr=True)).print(visible(text), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def moment(text: str, show: bool = True, after: float = 1.0) -> Iterator[None]:
    """Say `text` if what is done inside takes longer than a moment, so that nobody looks at nothing."""
    timer = threading.Timer(after, say, (text, show))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
