"""Progress of any long work: a bar in a terminal, lines elsewhere, nothing where nothing is wanted."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import pytest
from rich.console import Console
from rich.errors import LiveError
from rich.progress import Progress

from ba3us import progress
from ba3us.progress import Bar, bar, say


class Clock:
    """Tells the time it was set to."""

    now = 100.0

    def __call__(self):
        return self.now


def made(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def said(console):
    return console.file.getvalue().splitlines()


def test_lines_at_the_start_and_the_end_are_all_of_a_short_work():
    console, clock = made(), Clock()
    with bar("decoding [a]", 3, console=console, clock=clock) as b:
        for i in range(3):
            b.update(i + 1)
            clock.now += 1
    assert said(console) == ["decoding [a] 0/3", "decoding [a] 3/3 · took 0:00:03"]


def test_lines_every_five_seconds_then_every_thirty_with_the_time_left():
    console, clock = made(), Clock()
    with bar("adapt", 1000, console=console, clock=clock) as b:
        for second in range(1, 151):
            clock.now += 1
            b.update(2 * second, figures=f"loss {second}")
    lines = said(console)
    assert lines[0] == "adapt 0/1000"
    assert lines[1] == "adapt 10/1000 · loss 5 · 0:08:15 left"  # 990 at two a second
    seconds = [int(line.split("loss ")[1].split()[0]) for line in lines[1:-1]]
    assert seconds == [*range(5, 60, 5), 85, 115, 145]
    assert lines[-1] == "adapt 300/1000 · loss 150 · took 0:02:30"


def test_a_work_that_goes_on_from_the_middle_counts_from_there():
    console, clock = made(), Clock()
    with bar("adapt", 1000, console=console, clock=clock) as b:
        clock.now += 1
        b.update(900)
        clock.now += 10
        b.update(910)
    assert said(console)[1] == "adapt 910/1000 · 0:01:30 left"


def test_a_new_title_takes_the_place_of_the_old():
    console = made()
    with bar("warmup", 2, console=console, clock=Clock()) as b:
        b.update(2, title="adapt")
    assert said(console)[-1] == "adapt 2/2 · took 0:00:00"


def test_the_last_line_comes_also_when_the_work_fails():
    console = made()

    def work():
        with bar("work", 9, console=console, clock=Clock()) as b:
            b.update(4)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert said(console)[-1].startswith("work 4/9")


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_where_nothing_is_wanted(terminal):
    console = made(terminal)
    with bar("work", 2, show=False, console=console) as b:
        b.update(1, figures="x")
    say("done", show=False, console=console)
    assert said(console) == []


def test_a_terminal_has_a_bar():
    console = made(terminal=True)
    with bar("work [b]", 2, console=console) as b:
        b.update(2, figures="loss 0.5")
    text = console.file.getvalue()
    assert "work [b]" in text and "2/2" in text and "loss 0.5" in text


@pytest.mark.parametrize("same", [True, False])
def test_a_bar_inside_another_leaves_it_alone(same):
    outer_console = made(terminal=True)
    inner_console = outer_console if same else made(terminal=True)
    with bar("outer", 2, console=outer_console) as outer:
        with bar("inner", 2, console=inner_console) as inner:
            inner.update(1)
        outer.update(2)
    assert "outer" in outer_console.file.getvalue() and "2/2" in outer_console.file.getvalue()
    assert "inner" not in outer_console.file.getvalue() + inner_console.file.getvalue()


def test_a_console_that_is_taken_is_left_alone(monkeypatch):
    def taken(self):
        raise LiveError("Only one live display may be active at once")

    console = made(terminal=True)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "start", taken)
        with bar("work", 1, console=console) as b:
            assert type(b) is Bar
    assert said(console) == []
    with bar("work", 1, console=console) as b:  # and the next may draw
        assert type(b) is not Bar


def test_lines_go_to_standard_error(capsys):
    say("a [line] of 1234 words")
    with bar("work", 1):
        pass
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:2] == ["a [line] of 1234 words", "work 0/1"]


def test_it_needs_no_torch():
    code = "import sys, ba3us.progress; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("after", "said"), [(0.0, ["Loading"]), (60.0, [])])
def test_a_long_moment_is_explained(monkeypatch, after, said):
    heard, told = [], threading.Event()
    monkeypatch.setattr(progress, "say", lambda text, show: (heard.append(text), told.set()))
    with progress.moment("Loading", after=after):
        told.wait(30 if said else 0)
    assert heard == said
