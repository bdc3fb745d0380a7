"""What the commands do: adapt writes a run directory, predict reads one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ba3us.data import Target
from ba3us.data.files import Origin, check_same_backbone
from ba3us.data.writing import check_new_file, new_file
from ba3us.engine import folder as files
from ba3us.engine import opening
from ba3us.engine.again import images_seen
from ba3us.engine.auto import train_auto
from ba3us.engine.estimate import deeper
from ba3us.engine.model import Model
from ba3us.engine.opening import Opened, OpenedImages
from ba3us.engine.predictions import is_parquet, write_predictions
from ba3us.engine.reference import with_verdict
from ba3us.engine.run import Run
from ba3us.engine.samples import Arrays
from ba3us.engine.spec import Spec, is_images
from ba3us.engine.training import train_one
from ba3us.errors import UserError, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.progress import say
from ba3us.training import Hook
from ba3us.training.team import Team


def train(
    spec: Spec,
    opened: Opened,
    *,
    hooks: Sequence[Hook] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Train the system that a spec names, or choose one; see :func:`ba3us.engine.training.train_one`."""
    do = train_auto if spec.method == AUTO else train_one
    return do(spec, opened, hooks=hooks, state=state, resume=resume, show=show)


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
        if team.size == 1:
            run = with_verdict(run, spec, opened, show)
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
    """Predict more data of the run's kind with its model; what ``ba3us predict`` does.

    `out` becomes a CSV file, or a Parquet file if it ends in ``.parquet``.
    """
    run, data, out = Path(run), Path(data), Path(out)
    require(files.is_run(run), f"There is no run in {run}: give a folder that ba3us adapt wrote.")
    require(out.resolve() != data.resolve(), f"The output {out} is the data itself: choose another name.")
    check_new_file(out)
    parquet = is_parquet(out)
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
        counts = write_predictions(part, model, domain, paths, parquet)
    return {
        "run": str(run),
        "parquet" if parquet else "csv": str(out),
        "rows": len(domain),
        "skipped": sum(map(len, skipped.values())),
        "skipped_file": files.write_skipped(out.with_suffix(".skipped.csv"), skipped),
        "predicted": [{"class": c, "rows": int(n)} for c, n in zip(model.blueprint.classes, counts) if n],
    }
