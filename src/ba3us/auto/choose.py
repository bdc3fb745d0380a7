"""The automatic choice: candidates are tried beside source-only, and one network learns the chosen predictions.

1. Source-only is trained, and κ, the agreement of its predictions among the target's neighbours, is computed.
2. Candidates are trained (:mod:`ba3us.auto.candidates`) and combined (:mod:`ba3us.auto.ensemble`): a weighted
   average, in which source-only has half of the weight, so that it outweighs a candidate that failed.
3. The chosen probabilities are smoothed over the target's neighbours.
4. A source-only network is trained on the source and on the target with these classes: they are distilled into
   one small model.
5. The verdict (:mod:`ba3us.assess.verdict`) compares. Without evidence, source-only is used.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ba3us.assess.presence import presence_uncertainty
from ba3us.assess.verdict import ADAPTED, NEAR, SOURCE_ONLY, Verdict, judge_auto
from ba3us.auto.candidates import FAST, ROBUST, SHARPENING, train_candidates
from ba3us.auto.ensemble import Ensemble
from ba3us.auto.guard import AutoInputs, calibrate_run, source_only_run, source_only_spec
from ba3us.data import Target
from ba3us.data.domains import PseudoLabelledSource
from ba3us.errors import require
from ba3us.methods.auto import AutoOptions
from ba3us.methods.registry import get
from ba3us.progress import bar
from ba3us.run import storage as files
from ba3us.run.run import Run
from ba3us.run.samples import Domains, Opened
from ba3us.run.spec import Spec, check_auto
from ba3us.run.train import presence_table, train_one
from ba3us.training import Callback
from ba3us.training.distributed import ProcessGroup

_DISTILLED_STEPS = 2  # steps of the distilled network, as a multiple of a candidate's


def train_auto(
    spec: Spec,
    opened: Opened,
    *,
    callbacks: Sequence[Callback] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Carry out ``method: auto``; parameters as in :func:`ba3us.run.train.train_one`."""
    config, start = spec.method_options(), time.perf_counter()
    assert isinstance(config, AutoOptions)
    check_auto(spec)
    require(
        ProcessGroup.current().size == 1,
        "The automatic choice is made in one process: name a `method` for several devices.",
    )
    for name, is_default in (
        ("selection", spec.selection == "entropy"),
        ("evaluate_every", spec.evaluate_every is None),
    ):
        value = getattr(spec, name)
        require(is_default, f"`{name}` {value!r} is for named methods: leave it out, or name a `method` too.")
    total = 2 + (len(FAST) if config.preset == "fast" else len(ROBUST + SHARPENING))
    inputs = AutoInputs.of(spec, opened, show)
    with bar("auto", total, show) as progress_bar:
        source_only = source_only_run(spec, opened, inputs, callbacks)
        ensemble = Ensemble(inputs.neighbours, source_only.probabilities(inputs.sampled.target))
        progress_bar.update(1, f"source-only κ {ensemble.source_only.kappa:.2f}")

        candidates = FAST if config.preset == "fast" else ROBUST
        if config.preset == "best" and ensemble.source_only.kappa >= NEAR:
            candidates += SHARPENING
        results = train_candidates(
            candidates,
            dataclasses.replace(spec, standardize=inputs.standardize),
            inputs.vectors,
            None if state is None else files.candidates_folder(state),
            time.monotonic() + (config.time_limit or math.inf),
        )
        for done, result in enumerate(results, start=2):
            ensemble.add(result)
            best = ensemble.best
            progress_bar.update(done, f"{result.candidate.name}; {best.name} κ {best.agreement.kappa:.2f}")

        distilled_spec = dataclasses.replace(
            source_only_spec(spec),
            method=spec.method,
            method_params=dataclasses.asdict(config) | {"steps": _DISTILLED_STEPS * config.steps},
            selection="last",
        )
        pseudo_labelled = PseudoLabelledSource(*inputs.domains, inputs.indices, ensemble.labels())
        distilled, target = train_one(
            distilled_spec,
            opened,
            domains=Domains(pseudo_labelled, inputs.domains.target),
            callbacks=callbacks,
        )
        changed = float(np.mean(distilled.best.predictions != source_only.best.predictions))
        best = ensemble.best
        verdict = judge_auto(best.name, best.agreement, ensemble.source_only, changed, config.force)
        progress_bar.update(total, f"{best.name} κ {best.agreement.kappa:.2f}, {verdict.outcome}")
        run = _judged_run(spec, source_only, distilled, ensemble, verdict)
        run = calibrate_run(run, target, spec, opened, inputs)
    seconds = round(time.perf_counter() - start, 2)
    return dataclasses.replace(run, about=run.about | {"seconds": seconds}), target


def _judged_run(spec: Spec, source_only: Run, distilled: Run, ensemble: Ensemble, verdict: Verdict) -> Run:
    """One run with the verdict, and an evaluation each of source-only, the adapted model and the used one."""
    if verdict.model_used == ADAPTED:
        used, kappa, changed = distilled, ensemble.best.agreement.kappa, verdict.figures["changed"]
    else:
        used, kappa, changed = source_only, ensemble.source_only.kappa, 0.0
    uncertainty = presence_uncertainty(kappa, NEAR, changed)
    return dataclasses.replace(
        used,
        spec=dataclasses.replace(
            spec,
            method_params=dataclasses.asdict(spec.method_options()),
            n_threads=used.spec.n_threads,
            train=used.spec.train,
            standardize=used.spec.standardize,
        ),
        evaluations=[
            dataclasses.replace(source_only.best, phase=SOURCE_ONLY, candidate=False),
            dataclasses.replace(distilled.best, phase=ADAPTED, candidate=False),
            dataclasses.replace(used.best, phase="used", candidate=True),
        ],
        best_index=2,
        about=used.about
        | {
            "settings": get(spec.method).settings_note(spec.method_options()),
            "selected": used.about["selected"] | {"evaluation": 2, "rule": "auto"},
        },
        verdict=verdict,
        leaderboard=ensemble.leaderboard(),
        presence=presence_table(used.best, used.model.blueprint.classes, ensemble.alternatives, uncertainty),
    )
