"""The automatic choice: systems are tried beside source-only, and one network is taught what holds.

1. Source-only is trained, and κ, the agreement of its classes among the target's own neighbours, is measured.
2. Members are trained (:mod:`ba3us.auto.candidates`) and heard (:mod:`ba3us.auto.ensemble`): they vote, and
   source-only has half of the votes, so that it outvotes a member that went astray.
3. What was voted is smoothed over the target's neighbours.
4. A plain network learns the source's rows and the target's under these classes: one small model serves.
5. The verdict (:mod:`ba3us.assess.verdict`) compares. Without evidence, source-only is served.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ba3us.assess import verdict as verdicts
from ba3us.assess.presence import doubt_of
from ba3us.assess.verdict import ADAPTED, NEAR, PLAIN, Verdict
from ba3us.auto.candidates import FAST, ROBUST, SHARPENING, beliefs
from ba3us.auto.ensemble import Choice
from ba3us.auto.guard import Pile, _plain, calibrate_run, plain_run
from ba3us.data import Target
from ba3us.data.domains import TaughtSource
from ba3us.errors import require
from ba3us.methods.auto import AutoOptions
from ba3us.methods.registry import get
from ba3us.progress import Bar, bar
from ba3us.run import storage as files
from ba3us.run.opening import Domains, Opened, check_auto
from ba3us.run.run import Run
from ba3us.run.spec import Spec
from ba3us.run.train import presence_table, train_one
from ba3us.training import Hook
from ba3us.training.distributed import Team

_LONGER = 2  # the taught network learns for so many times a member's updates


def train_auto(
    spec: Spec,
    opened: Opened,
    *,
    hooks: Sequence[Hook] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Carry out ``method: auto``; as :func:`ba3us.run.train.train_one`."""
    config, start = spec.resolved(), time.perf_counter()
    assert isinstance(config, AutoOptions)
    check_auto(spec)
    require(
        Team.current().size == 1,
        "The automatic choice is made in one process: name a --method for several devices.",
    )
    require(
        spec.selection == "entropy",
        f"The selection {spec.selection!r} is for named systems: leave it out, or name a --method as well.",
    )
    require(
        spec.evaluate_every is None,
        f"evaluate_every {spec.evaluate_every} is for named systems: leave it out, or name a --method as well.",
    )
    kept = None if state is None else files.members_folder(state)
    total = 2 + (len(FAST) if config.preset == "fast" else len(ROBUST + SHARPENING))
    pile = Pile.of(spec, opened, show)
    with bar("auto", total, show) as shown:
        plain = plain_run(spec, opened, pile, hooks)
        choice = Choice(pile.near, plain.probabilities(pile.shown.target))
        shown.update(1, f"source-only κ {choice.plain.kappa:.2f}")
        _try_members(choice, pile, spec, config, kept, shown)
        lessons = TaughtSource(*pile.domains, pile.rows, choice.labels())
        seen = Domains(lessons, pile.domains.target)
        taught, target = train_one(_taught(spec), opened, domains=seen, hooks=hooks)
        changed = float(np.mean(taught.best.predictions != plain.best.predictions))
        best = choice.best
        said = verdicts.of_choice(best.name, best.standing, choice.plain, changed, config.force)
        shown.update(total, f"{best.name} κ {best.standing.kappa:.2f}, {said.word}")
        run = _run(spec, plain, taught, choice, said)
        calibrate_run(run, target, spec, opened, pile)
    run.about["seconds"] = round(time.perf_counter() - start, 2)
    return run, target


def _try_members(
    choice: Choice, pile: Pile, spec: Spec, config: AutoOptions, kept: Path | None, shown: Bar
) -> None:
    until = time.monotonic() + config.time_limit if config.time_limit else math.inf
    members = FAST if config.preset == "fast" else ROBUST
    if config.preset == "best" and choice.plain.kappa >= NEAR:
        members += SHARPENING
    for done, belief in enumerate(beliefs(members, pile.scaled(spec), pile.opened, kept, until), start=2):
        choice.hear(belief)
        shown.update(done, f"{belief.member.name}; {choice.best.name} κ {choice.best.standing.kappa:.2f}")


def _taught(spec: Spec) -> Spec:
    """The network that learns what was chosen."""
    config = spec.resolved()
    options = dataclasses.asdict(config) | {"steps": _LONGER * config.steps}
    return dataclasses.replace(_plain(spec), method=spec.method, options=options, selection="last")


def _run(spec: Spec, plain: Run, taught: Run, choice: Choice, said: Verdict) -> Run:
    """One run of it all, with an evaluation of source-only, of what was adapted, and of what is served."""
    served = taught if said.served == ADAPTED else plain
    looks = [
        dataclasses.replace(plain.best, phase=PLAIN, candidate=False),
        dataclasses.replace(taught.best, phase=ADAPTED, candidate=False),
        dataclasses.replace(served.best, phase="served", candidate=True),
    ]
    full = dataclasses.replace(
        spec,
        options=dataclasses.asdict(spec.resolved()),
        threads=served.spec.threads,
        train=served.spec.train,
        scale=served.spec.scale,
    )
    about = served.about | {
        "settings": get(spec.method).settings_note(spec.resolved()),
        "selected": served.about["selected"] | {"evaluation": len(looks) - 1, "rule": "auto"},
    }
    run = dataclasses.replace(
        served, spec=full, evaluations=looks, selected=len(looks) - 1, about=about, verdict=said
    )
    run.leaderboard = choice.leaderboard()
    judged, changed = choice.best.standing, said.figures["changed"]
    if said.served == PLAIN:
        judged, changed = choice.plain, 0.0
    run.presence = presence_table(run, choice.smoothed, doubt_of(judged.kappa, NEAR, changed))
    return run
