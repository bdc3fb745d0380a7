"""The automatic choice: systems are tried beside source-only, and one network is taught what holds.

1. Source-only is trained, and κ, the agreement of its classes among the target's own neighbours, is measured.
2. Members are trained (:mod:`ba3us.engine.portfolio`) and heard (:mod:`ba3us.engine.choice`): they vote, and
   source-only has half of the votes, so that it outvotes a member that went astray.
3. What was voted is smoothed over the target's neighbours.
4. A plain network learns the source's rows and the target's under these classes: one small model serves.
5. The verdict (:mod:`ba3us.selection.verdict`) compares. Without evidence, source-only is served.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ba3us.data import Source, Target
from ba3us.data.domain import check_alike
from ba3us.data.taught import TaughtSource
from ba3us.engine import folder as files
from ba3us.engine.calibrating import calibrated
from ba3us.engine.choice import Choice
from ba3us.engine.opening import Opened, OpenedArrays, check_auto
from ba3us.engine.portfolio import FAST, ROBUST, SHARPENING, Member, beliefs
from ba3us.engine.run import Run
from ba3us.engine.samples import Domains
from ba3us.engine.spec import Spec
from ba3us.engine.training import presence_table, scaled, train_one
from ba3us.engine.vectors import neighbours, sampled, vectors
from ba3us.errors import UserError, require
from ba3us.methods.auto import AutoOptions
from ba3us.methods.registry import get
from ba3us.neighbours import Neighbours
from ba3us.progress import Bar, bar
from ba3us.selection import verdict as verdicts
from ba3us.selection.presence import doubt_of
from ba3us.selection.verdict import ADAPTED, NEAR, PLAIN, Verdict
from ba3us.training import Hook
from ba3us.training.team import Team

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
    """Carry out ``method: auto``; as :func:`ba3us.engine.training.train_one`."""
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


@dataclass(frozen=True, eq=False)
class Pile:
    """Vectors of both domains, and what members are shown of the target: at most ten thousand rows."""

    opened: OpenedArrays
    domains: Domains
    rows: np.ndarray
    shown: Domains
    near: Neighbours
    scale: bool

    def scaled(self, spec: Spec) -> Spec:
        """The spec with what was decided for all of its systems, not for each by what it is shown."""
        return dataclasses.replace(spec, scale=self.scale)

    @classmethod
    def of(cls, spec: Spec, opened: Opened, show: bool = False) -> Pile:
        """From samples."""
        seen = vectors(opened, spec, show)
        rows = sampled(len(seen.target))
        pile = dataclasses.replace(seen, target=seen.target[rows]) if len(rows) < len(seen.target) else seen
        shown = pile.domains(None, spec, False)
        check_alike(*shown)
        scale = bool(getattr(scaled(spec, opened), "scaled", False))
        near = neighbours(*shown, np.arange(len(rows)), scale)
        return cls(pile, seen.domains(None, spec, False), rows, shown, near, scale)


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


def hear_fast(choice: Choice, pile: Pile, spec: Spec) -> None:
    """Let the members of the preset ``fast`` be heard."""
    for belief in beliefs(FAST, pile.scaled(spec), pile.opened, None, math.inf):
        choice.hear(belief)


def plain_run(spec: Spec, opened: Opened, pile: Pile, hooks: Sequence[Hook] = ()) -> Run:
    """Source-only, which everything is compared with."""
    return train_one(_plain(spec), opened, domains=pile.domains, hooks=hooks)[0]


def calibrate_run(run: Run, target: Target, spec: Spec, opened: Opened, pile: Pile) -> None:
    """Of a run that has been judged; its twin is the source-only of :func:`plain_run`, on fewer rows.

    Where the twin comes to nothing, the run says so and has no calibration.
    """

    def twin(part: Source) -> Run:
        return train_one(_plain(spec), opened, domains=Domains(part, pile.domains.target))[0]

    try:
        run.calibration = calibrated(run, target, pile.domains.source, twin)
    except UserError as error:
        run.notes = [*run.notes, f"There is no calibration: {error}"]


def _plain(spec: Spec) -> Spec:
    """The source-only run that everything is compared with."""
    asked = Member(PLAIN, PLAIN).spec(spec)
    places = ("source", "target", "labels", "root", "classes", "backbone", "weights", "size", "precision")
    also = {name: getattr(spec, name) for name in (*places, "cache_gb", "workers")}
    images = spec.source is not None and spec.of_images
    return dataclasses.replace(asked, **also, selection="entropy", train="head" if images else None)


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
