"""Adapting to images and predicting more of them.

The run directory is that of a run on features, plus ``skipped.csv`` if files were left out. A hidden file
beside it holds the state of a run that goes on, so that it can be resumed.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from ba3us import methods
from ba3us.data import Target
from ba3us.data.writing import check_new_file, check_new_folder, new_file, new_folder
from ba3us.errors import UserError, require
from ba3us.image_runs import opening
from ba3us.image_runs.opening import OpenedSource, OpenedTarget
from ba3us.image_runs.options import ImageOptions
from ba3us.image_runs.plan import Plan
from ba3us.nn.backbones import Backbone, create_backbone
from ba3us.runs import MODEL, is_run, presence_table, write_predictions, write_tables
from ba3us.training import ImageBlueprint, ImageModel, ProgressBar, Result, Trainer
from ba3us.training.team import Team

_FEATURES = (".npz", ".npy")


def is_images(path: str | Path) -> bool:
    """Whether a path is that of images (a folder or a list file) rather than of a feature file."""
    return Path(path).is_dir() or Path(path).suffix not in _FEATURES


def are_images(
    source: str | Path, target: str | Path, for_features: dict[str, Any], for_images: dict[str, Any]
) -> bool:
    """Whether both domains are images rather than feature files; options given must be for what they are."""
    images = is_images(source) and is_images(target)
    kind, other = ("images", for_features) if images else ("features", for_images)
    wrong = [name for name, value in other.items() if value is not None]
    if wrong:
        raise UserError(f"--{wrong[0].replace('_', '-')} is not for {kind} such as {source}: leave it out.")
    return images


def is_image_run(path: str | Path) -> bool:
    """Whether a folder holds a run on images."""
    if not is_run(Path(path)):
        return False
    try:
        config = yaml.safe_load((Path(path) / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return False
    return isinstance(config, dict) and config.get("data") == "images"


def adapt_images(
    source: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    method: str = "ba3us",
    steps: int = 1000,
    options: dict[str, Any] | None = None,
    images: ImageOptions | None = None,
    root: str | Path | None = None,
    classes: str | Path | None = None,
    seed: int = 0,
    threads: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    verbose: bool = False,
) -> dict[str, Any]:
    """Adapt from labelled to unlabelled images and write a run directory; what ``ba3us adapt`` does on images.

    Parameters
    ----------
    source : path
        A folder of class folders, or a list file of ``path label``.
    target : path
        A folder of images, however nested, or a list file; labels and folder names are not used.
    out : path
        The run directory; it must not hold a run yet, unless `overwrite`.
    method, steps, options
        As for :class:`~ba3us.estimator.PartialAdapter`.
    images : ImageOptions, optional
        Backbone, depth of training, cache, precision.
    root, classes : path, optional
        For list files: where paths start, and class names, one per line.
    seed, threads : int
        Results repeat for the same of both.
    resume : bool
        Go on where the same run was interrupted, if it was; else start anew.
    verbose : bool
        Show progress.

    Returns
    -------
    dict
        A summary of JSON values.
    """
    out, chosen, team = Path(out), images or ImageOptions(), Team.current()
    if team.first:
        check_new_folder(out, overwrite, is_run)
    config = methods.get(method).config(**({"steps": steps} | (options or {})))
    plan = Plan(config, method, seed, threads, chosen)
    base, names = (None if path is None else Path(path) for path in (root, classes))
    listed = opening.list_source(Path(source), base, names)
    unlabelled = opening.list_target(Path(target), base)
    backbone = create_backbone(chosen.backbone, chosen.weights)
    backbone = dataclasses.replace(backbone, size=chosen.size or backbone.size)
    side = plan.blueprint(backbone, 0).side
    found = opening.open_source(listed, side, chosen, verbose)
    given = opening.open_target(unlabelled, side, chosen, verbose)

    start = time.perf_counter()
    blueprint = plan.blueprint(backbone, len(found.class_names))
    state = plan.state_file(out, blueprint, found, given)
    resumed = resume and state.is_file()
    trained = _train(plan, blueprint, backbone, found, given, state, resumed, verbose)
    seconds = time.perf_counter() - start

    skipped = {"source": found.skipped, "target": given.skipped}
    described = plan.described(blueprint, trained.result, source, found, target, given)
    presence = presence_table(found.class_names, trained.result.evaluations[trained.result.selected])
    count = sum(map(len, skipped.values()))
    if team.first:
        check_new_folder(out, overwrite, is_run)  # somebody may have been faster
        with new_folder(out) as folder:
            _write_run(folder, described, presence, trained, found.class_names, given)
            opening.write_skipped(folder / "skipped.csv", skipped)
        state.unlink(missing_ok=True)
    team.wait()
    return {
        "run": str(out),
        "method": method,
        "backbone": chosen.backbone,
        "trained": chosen.train,
        "source_rows": len(found.pixels),
        "target_rows": len(given.pixels),
        "skipped": count,
        "skipped_file": str(out / "skipped.csv") if count else None,
        "notes": opening.notes_on(found.class_names),
        "resumed": resumed,
        "selected": described["selected"],
        "seconds": round(seconds, 2),
        "classes_present": presence["class"][presence["present"]].tolist(),
        "classes": presence.to_dict(orient="records"),
    }


@dataclass(frozen=True)
class _Trained:
    """A trained model, how it came about, and the target as it sees it."""

    model: ImageModel
    result: Result
    target: Target


def _train(
    plan: Plan,
    blueprint: ImageBlueprint,
    backbone: Backbone,
    found: OpenedSource,
    given: OpenedTarget,
    state: Path,
    resumed: bool,
    verbose: bool,
) -> _Trained:
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        front, step = blueprint.assemble(backbone)
    if plan.chosen.compile:
        step.network.backbone.compile()
    source, target = plan.domains(blueprint, found, given, front, verbose)
    trainer = Trainer(step.network, step.method, plan.run(state), hooks=[ProgressBar()] if verbose else [])
    result = (trainer.resume(state) if resumed else trainer).fit(source, target)
    return _Trained(ImageModel(blueprint, result.module, front), result, target)


def _write_run(
    folder: Path,
    described: dict[str, Any],
    presence: pd.DataFrame,
    trained: _Trained,
    names: list[str],
    given: OpenedTarget,
) -> None:
    """All but ``skipped.csv``."""
    write_tables(folder, described, trained.result.full_history(), presence)
    trained.model.save(folder / MODEL, {"classes": names})
    paths = given.pixels.images.paths
    write_predictions(folder / "predictions.csv", trained.model, names, trained.target, paths)


def predict_images(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    images: ImageOptions | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Predict images with the model of a run on images, into a CSV file; what ``ba3us predict`` does on images.

    Of `images`, only the cache, the device and the workers are used.
    """
    run, data, out, chosen = Path(run), Path(data), Path(out), images or ImageOptions()
    require(is_image_run(run), f"There is no run on images in {run}: give one that ba3us adapt wrote.")
    require(is_images(data), f"{data} holds features, but {run} is a run on images: give images.")
    require(out.resolve() != data.resolve(), f"The output {out} is the data itself: choose another name.")
    check_new_file(out)
    model, about = ImageModel.load(run / MODEL)
    classes = about.get("classes")
    if not isinstance(classes, list) or len(classes) != model.blueprint.classes:
        raise UserError(f"The model of {run} does not name its classes: it is damaged; adapt again.")
    listed = opening.list_target(data, None if root is None else Path(root))
    given = opening.open_target(listed, model.blueprint.side, chosen, verbose)
    model.module.to(chosen.place)
    domain = model.domain(given.pixels, device=chosen.place)
    with new_file(out) as part:
        counts = write_predictions(part, model, classes, domain, given.pixels.images.paths)
    listing = out.with_suffix(".skipped.csv")
    listing.unlink(missing_ok=True)  # of an earlier call
    skipped = opening.write_skipped(listing, {"data": given.skipped})
    return {
        "run": str(run),
        "csv": str(out),
        "rows": len(domain),
        "skipped": skipped,
        "skipped_file": str(listing) if skipped else None,
        "predicted": [{"class": c, "rows": int(n)} for c, n in zip(classes, counts) if n],
    }
