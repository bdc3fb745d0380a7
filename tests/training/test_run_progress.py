"""The progress bar of a run: what it shows, and that it always gives the terminal back."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ba3us.progress import Bar
from ba3us.progress import bar as shown
from ba3us.training import Callback, Execution, ProgressBar
from toys import blobs, trainer

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # what rich writes to hide and to show the cursor


def bar_and_output(terminal=True, **options):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=140, color_system=None)
    return ProgressBar(console, **options), out


def run(*callbacks, **options):
    source, target, _ = blobs()
    return trainer(callbacks=callbacks, **options).fit(source, target)


def test_one_bar_over_all_phases_with_the_figures_that_matter():
    bar, out = bar_and_output(title="ba3us [seed 0]")
    result = run(bar, warmup_steps=5)
    text, last = out.getvalue(), result.history.iloc[-1]
    assert "ba3us [seed 0] warmup" in text and "0/13" in text
    final = text.rsplit("ba3us [seed 0] adapt", 1)[1]
    assert "13/13" in final
    assert f"loss {last['loss']:.3f}" in final
    assert f"target entropy {result.evaluations[-1].scores['entropy']:.3f}" in final
    assert f"classes {last['effective_classes']:.1f}" in final
    assert f"borrowed {last['borrowed']:d}" in final


def test_a_method_without_class_weights_shows_what_it_has():
    bar, out = bar_and_output()
    run(bar, name="source-only")
    assert "loss" in out.getvalue() and "classes" not in out.getvalue()


def test_where_there_is_no_terminal_it_writes_plain_lines():
    bar, out = bar_and_output(terminal=False, title="ba3us")
    result = run(bar)
    first, last = out.getvalue().splitlines()
    assert first == "ba3us adapt 0/8"
    assert last.startswith(f"ba3us adapt 8/8 · loss {result.history['loss'].iloc[-1]:.3f} · target entropy ")
    assert "\x1b" not in last and " · took 0:00:0" in last


def test_it_writes_to_standard_error(capsys):
    run(ProgressBar())
    captured = capsys.readouterr()
    assert captured.out == "" and "8/8" in captured.err


class Breaks(Callback):
    """Raises at one event."""

    def __init__(self, event, error):
        def broken(*_):
            raise error

        setattr(self, event, broken)


@pytest.mark.parametrize("event", ["on_start", "on_step", "on_evaluation", "on_end"])
@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_an_exception_leaves_the_terminal_as_it_was(event, error):
    bar, out = bar_and_output()
    callbacks = (bar, Breaks(event, error)) if event == "on_start" else (Breaks(event, error), bar)
    with pytest.raises(type(error)):
        run(*callbacks)
    assert HIDE in out.getvalue()
    assert out.getvalue().rindex(SHOW) > out.getvalue().rindex(HIDE)
    with shown(console=bar.console, title="", total=1) as free:
        assert type(free) is not Bar


def test_the_bar_serves_one_run_after_the_other():
    bar, out = bar_and_output()
    run(bar)
    first = len(out.getvalue())
    run(bar, steps=6)
    assert "6/6" in out.getvalue()[first:]


def test_a_resumed_run_starts_where_it_stood(tmp_path):
    path = tmp_path / "state.pt"
    source, target, _ = blobs()
    config = Execution(n_threads=1, log_every=1, checkpoint=path)
    with pytest.raises(RuntimeError):
        trainer(run=config, callbacks=(Stop(5),)).fit(source, target)
    bar, _ = bar_and_output()
    completed = []

    class Look(Callback):
        def on_step(self, trainer, step):
            completed.append(bar._bar.progress.tasks[0].completed)

    trainer(run=config, callbacks=(bar, Look())).resume(path).fit(source, target)
    assert completed == [5, 6, 7, 8]


class Stop(Callback):
    def __init__(self, at):
        self.at = at

    def on_step(self, trainer, step):
        if step.number == self.at:
            raise RuntimeError("stopped")
