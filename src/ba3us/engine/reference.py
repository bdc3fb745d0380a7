"""The verdict on a named system: it stays as it is, and is told what the automatic choice would say."""

from __future__ import annotations

import dataclasses

import numpy as np

from ba3us.data import Target
from ba3us.engine.auto import Pile, calibrate_run, hear_fast, plain_run
from ba3us.engine.choice import Choice
from ba3us.engine.opening import Opened
from ba3us.engine.run import Run
from ba3us.engine.spec import Spec
from ba3us.engine.training import presence_table
from ba3us.engine.vectors import vectors
from ba3us.errors import UserError
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.auto import AutoOptions
from ba3us.progress import bar
from ba3us.selection import verdict as verdicts
from ba3us.selection.presence import doubt_of
from ba3us.selection.verdict import NEAR, PLAIN


def with_verdict(run: Run, target: Target, spec: Spec, opened: Opened, show: bool = False) -> Run:
    """The run with a verdict and a calibration, and what is known of the classes; nothing else of it changes.

    Source-only and one robust system are trained on the vectors that the run began with, with the automatic
    choice's own settings and no more updates than the run had. Where that can't
    be done, the run says so and has no verdict.
    """
    if run.verdict is not None or spec.method == PLAIN:
        return run
    options = {"steps": max(1, min(AutoOptions().steps, spec.resolved().steps))}
    auto = dataclasses.replace(
        spec, method=AUTO, options=options, protocol=None, task=None, train=None, views=None, ten_crop=False
    )
    try:
        with bar("Comparing with source-only", 2, show) as shown:
            seen = vectors(opened, auto, show)
            pile = Pile.of(auto, seen)
            plain = plain_run(auto, seen, pile)
            shown.update(1)
            choice = Choice(pile.near, plain.probabilities(pile.shown.target))
            hear_fast(choice, pile, auto)
    except UserError as error:
        run.notes = [*run.notes, f"There is no verdict: {error}"]
        return run
    known = verdicts.speaks_for(choice.best.standing, choice.plain)
    labels = choice.labels() if known else None
    own, base = (each.best.predictions[pile.rows] for each in (run, plain))
    run.verdict = verdicts.of_run(own, base, labels, pile.near)
    others: list[np.ndarray] = choice.smoothed
    doubt = doubt_of(choice.best.standing.kappa, NEAR, run.verdict.figures["changed"])
    run.presence = presence_table(run, others, doubt)
    calibrate_run(run, target, auto, seen, pile)
    return run
