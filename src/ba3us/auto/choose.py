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
from ba3us.assess.presence import presence_uncertainty
from ba3us.assess.verdict import ADAPTED, NEAR, SOURCE_ONLY, Verdict
from ba3us.auto.candidates import FAST, ROBUST, SHARPENING, train_candidates
from ba3us.auto.ensemble import Ensemble
from ba3us.auto.guard import AutoInputs, calibrate_run, source_only_run, source_only_spec
from ba3us.data import Target
from ba3us.data.domains import PseudoLabelledSource
from ba3us.errors import require
from ba3us.methods.auto import AutoOptions
from ba3us.methods.registry import get
from ba3us.progress import Bar, bar
from ba3us.run import storage as files
from ba3us.run.run import Run
from ba3us.run.samples import Domains, Opened
from ba3us.run.spec import Spec, check_auto
from ba3us.run.train import presence_table, train_one
from ba3us.training import Callback
from ba3us.training.distributed import ProcessGroup

_LONGER = 2  # the taught network learns for so many times a member's updates


def train_auto(
    spec: Spec,
    opened: Opened,
    *,
    callbacks: Sequence[Callback] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Carry out ``method: auto``; as :func:`ba3us.run.train.train_one`."""
    config, start = spec.method_options(), time.perf_counter()
    assert isinstance(config, AutoOptions)
    check_auto(spec)
    require(
        ProcessGroup.current().size == 1,
        "The automatic choice is made in one process: name a `method` for several devices.",
    )
    require(
        spec.selection == "entropy",
        f"The `selection` {spec.selection!r} is for named methods: leave it out, or name a `method` too.",
    )
    require(
        spec.evaluate_every is None,
        f"`evaluate_every` {spec.evaluate_every} is for named methods: leave it out, or name a `method` too.",
    )
    kept = None if state is None else files.candidates_folder(state)
    total = 2 + (len(FAST) if config.preset == "fast" else len(ROBUST + SHARPENING))
    inputs = AutoInputs.of(spec, opened, show)
    with bar("auto", total, show) as shown:
        plain = source_only_run(spec, opened, inputs, callbacks)
        choice = Ensemble(inputs.near, plain.probabilities(inputs.shown.target))
        shown.update(1, f"source-only κ {choice.plain.kappa:.2f}")
        _try_members(choice, inputs, spec, config, kept, shown)
        lessons = PseudoLabelledSource(*inputs.domains, inputs.rows, choice.labels())
        seen = Domains(lessons, inputs.domains.target)
        distilled, target = train_one(_taught(spec), opened, domains=seen, callbacks=callbacks)
        changed = float(np.mean(distilled.best.predictions != plain.best.predictions))
        best = choice.best
        said = verdicts.judge_auto(best.name, best.standing, choice.plain, changed, config.force)
        shown.update(total, f"{best.name} κ {best.standing.kappa:.2f}, {said.outcome}")
        run = _run(spec, plain, distilled, choice, said)
        run = calibrate_run(run, target, spec, opened, inputs)
    seconds = round(time.perf_counter() - start, 2)
    return dataclasses.replace(run, about=run.about | {"seconds": seconds}), target


def _try_members(
    choice: Ensemble, inputs: AutoInputs, spec: Spec, config: AutoOptions, kept: Path | None, shown: Bar
) -> None:
    until = time.monotonic() + config.time_limit if config.time_limit else math.inf
    members = FAST if config.preset == "fast" else ROBUST
    if config.preset == "best" and choice.plain.kappa >= NEAR:
        members += SHARPENING
    for done, result in enumerate(
        train_candidates(members, inputs.scaled(spec), inputs.opened, kept, until), start=2
    ):
        choice.add(result)
        shown.update(done, f"{result.candidate.name}; {choice.best.name} κ {choice.best.standing.kappa:.2f}")


def _taught(spec: Spec) -> Spec:
    """The network that learns what was chosen."""
    config = spec.method_options()
    options = dataclasses.asdict(config) | {"steps": _LONGER * config.steps}
    return dataclasses.replace(
        source_only_spec(spec), method=spec.method, method_params=options, selection="last"
    )


def _run(spec: Spec, plain: Run, distilled: Run, choice: Ensemble, said: Verdict) -> Run:
    """One run of it all, with an evaluation of source-only, of what was adapted, and of what is served."""
    served = distilled if said.model_used == ADAPTED else plain
    looks = [
        dataclasses.replace(plain.best, phase=SOURCE_ONLY, candidate=False),
        dataclasses.replace(distilled.best, phase=ADAPTED, candidate=False),
        dataclasses.replace(served.best, phase="used", candidate=True),
    ]
    full = dataclasses.replace(
        spec,
        method_params=dataclasses.asdict(spec.method_options()),
        n_threads=served.spec.n_threads,
        train=served.spec.train,
        standardize=served.spec.standardize,
    )
    about = served.about | {
        "settings": get(spec.method).settings_note(spec.method_options()),
        "selected": served.about["selected"] | {"evaluation": len(looks) - 1, "rule": "auto"},
    }
    judged, changed = choice.best.standing, said.figures["changed"]
    if said.model_used == SOURCE_ONLY:
        judged, changed = choice.plain, 0.0
    uncertainty = presence_uncertainty(judged.kappa, NEAR, changed)
    return dataclasses.replace(
        served,
        spec=full,
        evaluations=looks,
        best_index=len(looks) - 1,
        about=about,
        verdict=said,
        leaderboard=choice.leaderboard(),
        presence=presence_table(served.best, served.model.blueprint.classes, choice.smoothed, uncertainty),
    )
