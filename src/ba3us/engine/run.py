"""A run: a training that has ended, with all that is known of it. It saves, loads, resumes and predicts."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from ba3us import __version__, methods
from ba3us.data import Target
from ba3us.data.files import Origin, check_same_backbone
from ba3us.data.images import Skipped
from ba3us.data.writing import check_new_file, new_file, new_folder
from ba3us.engine import folder as files
from ba3us.engine import opening
from ba3us.engine.again import images_seen
from ba3us.engine.build import Blueprint
from ba3us.engine.estimate import deeper
from ba3us.engine.model import Model
from ba3us.engine.opening import Opened, OpenedImages
from ba3us.engine.samples import Arrays
from ba3us.engine.spec import PRECISIONS, Spec, is_images
from ba3us.errors import UserError, require
from ba3us.progress import say
from ba3us.selection import class_shares, present_classes
from ba3us.training import Evaluation, Execution, Hook, ProgressBar, Trainer
from ba3us.training.seeding import seeded
from ba3us.training.team import Team


@dataclass
class Run:
    """A finished run.

    Attributes
    ----------
    spec : Spec
        What was asked for, with every hyper-parameter.
    model : Model
        The network, with the selected weights.
    history : DataFrame
        Losses, ramps and label-free scores over the updates.
    evaluations : list of Evaluation
        Looks at the whole target while training.
    selected : int
        Which of them has the weights of the model.
    about : dict
        Version, sizes, times, whose settings.
    """

    spec: Spec
    model: Model
    history: pd.DataFrame
    evaluations: list[Evaluation]
    selected: int
    about: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[Skipped]] = field(default_factory=dict)

    @property
    def best(self) -> Evaluation:
        """The evaluation that was selected."""
        return self.evaluations[self.selected]

    @property
    def presence(self) -> pd.DataFrame:
        """One row per class: its share of target predictions, its mean probability, whether it is present."""
        classes = self.model.blueprint.classes
        shares = class_shares(self.best.predictions, len(classes))
        return pd.DataFrame(
            {
                "class": classes,
                "share": shares.round(6),
                "mean_probability": self.best.mean_probabilities.astype(float).round(6),
                "present": present_classes(shares),
            }
        )

    def summary(self) -> dict[str, Any]:
        """JSON values for people and machines."""
        presence, spec = self.presence, self.spec
        return {
            "method": spec.method,
            **self.about,
            "notes": self.notes,
            "skipped": sum(map(len, self.skipped.values())),
            "classes_present": presence["class"][presence["present"]].tolist(),
            "classes": presence.to_dict(orient="records"),
        }

    # --- on disk -----------------------------------------------------------------------------------------

    def save(self, path: str | Path, target: Target | None = None, paths: list[str] | None = None) -> None:
        """Write a run directory, whole or not at all; with predictions for `target`, if it is given."""
        with new_folder(Path(path)) as folder:
            about = self.about | ({"notes": self.notes} if self.notes else {})
            (folder / files.SPEC).write_text(self.spec.written(**about), encoding="utf-8")
            self.history.to_csv(folder / files.HISTORY, index=False)
            self.model.save(folder / files.MODEL)
            files.write_evaluations(folder / files.EVALUATIONS, self.evaluations)
            files.write_presence(folder / files.PRESENCE, self.presence)
            files.write_skipped(folder / files.SKIPPED, self.skipped)
            if target is not None:
                files.write_predictions(folder / files.PREDICTIONS, self.model, target, paths)

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read what :meth:`save` wrote."""
        path = Path(path)
        require(files.is_run(path), f"There is no run in {path}: give a folder that ba3us adapt wrote.")
        spec = Spec.read(path / files.SPEC)
        about = yaml.safe_load((path / files.SPEC).read_text(encoding="utf-8")).get("about", {})
        try:
            history = pd.read_csv(path / files.HISTORY)
            selected = int(about["selected"]["evaluation"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"The run {path} is not whole ({type(error).__name__}): adapt again.") from error
        return cls(
            spec=spec,
            model=Model.load(path / files.MODEL),
            history=history,
            evaluations=files.read_evaluations(path / files.EVALUATIONS),
            selected=selected,
            notes=about.pop("notes", []),
            skipped=files.read_skipped(path / files.SKIPPED),
            about=about,
        )


def train(
    spec: Spec,
    opened: Opened,
    *,
    hooks: Sequence[Hook] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Build, train and select; returns the run and the target as its network saw it.

    Parameters
    ----------
    spec, opened
        What to do, and the samples.
    hooks : sequence of Hook
        Onlookers.
    state : path, optional
        Where to keep the state of the run at every evaluation.
    resume : bool
        Go on from `state`, if it is there and of this very run.
    show : bool
        Show progress on the standard error.
    """
    config, start = spec.resolved(), time.perf_counter()
    blueprint = Blueprint.of(spec.method, config, opened.classes, opened.samples)
    with seeded(spec.seed):
        front, module = blueprint.build(opened.backbone)
    if spec.compile:
        module.network.backbone.compile()
    source, target = opened.domains(front, spec, show)
    on_cpu, team = opening.place(spec) == "cpu", Team.current()
    execution = Execution(
        seed=spec.seed,
        threads=spec.threads,
        accelerator=spec.device,
        devices=spec.devices if team.size == 1 else None,  # else they have been started
        nodes=spec.nodes if team.size == 1 else None,
        precision=PRECISIONS[spec.precision],
        predict_batch=1024 if len(source.shape) == 1 else 32 if on_cpu else 256,
        checkpoint=state,
        identity="" if state is None else opening.digest(spec, opened, (team.size, torch.get_num_threads())),
    )
    shown = [ProgressBar(title=spec.method), *hooks] if show else hooks
    trainer = Trainer(module.network, module.method, execution, rule=spec.selection, hooks=shown)
    resumed = resume and state is not None and state.is_file()
    result = (trainer.resume(state) if resumed and state is not None else trainer).fit(source, target)
    best = result.evaluations[result.selected]
    about: dict[str, Any] = {
        "version": __version__,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "settings": methods.get(spec.method).settings_note(config, spec.protocol, spec.task),
        "source_rows": opened.rows[0],
        "target_rows": opened.rows[1],
        "updates": sum(phase.steps for phase in result.recipe.phases),
        "trained": getattr(opened.samples, "train", None),
        "processes": team.size,
        "resumed": resumed,
        "selected": {
            "evaluation": result.selected,
            "rule": result.rule,
            "phase": best.phase,
            "step": best.step,
            "scores": {name: round(value, 6) for name, value in best.scores.items()},
        },
        "seconds": round(time.perf_counter() - start, 2),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    full = dataclasses.replace(
        spec,
        options=dataclasses.asdict(config),
        threads=spec.threads or torch.get_num_threads(),
        train=getattr(opened.samples, "train", None),
    )
    model = Model(blueprint, result.module, front)
    run = Run(full, model, result.full_history(), result.evaluations, result.selected, about)
    run.notes, run.skipped = opened.notes, opened.skipped
    return run, target


def adapt(
    spec: Spec,
    out: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    hooks: Sequence[Hook] = (),
    show: bool = False,
) -> Run:
    """Carry out a spec and write a run directory; what ``ba3us adapt`` does.

    An interrupted run, or one that can't be written in the end, leaves its state in ``out/checkpoints``; with
    `resume` it goes on from there, to the same end. A training that fails leaves nothing.
    """
    out, team = Path(out), Team.current()
    spec.written()  # say now if it can't be
    if team.first:
        files.check_free(out, overwrite, resume)
    opened = opening.open_spec(spec, show)
    if isinstance(opened, OpenedImages) and spec.train is None and opened.samples.train == "head":
        opened.notes.append(deeper(opened, spec.resolved()))
        say(opened.notes[-1], show)
    try:
        run, target = train(spec, opened, hooks=hooks, state=files.state_file(out), resume=resume, show=show)
    except UserError:
        if team.first and not resume:
            files.remove_state(out)
        raise
    if team.first:
        files.check_free(out, overwrite, resume=True)  # somebody may have been faster
        run.save(out, target, opened.paths)
    team.wait()
    return run


def predict(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str | None = None,
    show: bool = False,
) -> dict[str, Any]:
    """Predict more data of the run's kind with its model, into a CSV file; what ``ba3us predict`` does."""
    run, data, out = Path(run), Path(data), Path(out)
    require(files.is_run(run), f"There is no run in {run}: give a folder that ba3us adapt wrote.")
    require(out.resolve() != data.resolve(), f"The output {out} is the data itself: choose another name.")
    check_new_file(out)
    model, where = Model.load(run / files.MODEL), Spec(device=device)
    samples, skipped = model.blueprint.samples, {}
    if isinstance(samples, Arrays):
        require(
            root is None, f"--root is for list files of images, but {run} is a run on features: leave it out."
        )
        found = opening.read_array(data)
        check_same_backbone(Origin(samples.backbone, samples.weights), found.origin, data)
        domain, paths = samples.domain(found.features, f"data of {data}"), found.paths
    else:
        require(is_images(data), f"{data} holds features, but {run} is a run on images: give images.")
        listed = opening.list_images(data, root)
        domain, opened = images_seen(model, listed, where, f"data of {data}", show)
        paths, skipped = opened.images.paths, {"data": opened.skipped}
    with new_file(out) as part:
        counts = files.write_predictions(part, model, domain, paths)
    return {
        "run": str(run),
        "csv": str(out),
        "rows": len(domain),
        "skipped": sum(map(len, skipped.values())),
        "skipped_file": files.write_skipped(out.with_suffix(".skipped.csv"), skipped),
        "predicted": [{"class": c, "rows": int(n)} for c, n in zip(model.blueprint.classes, counts) if n],
    }
