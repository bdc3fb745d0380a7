"""What the commands do: adapt writes a run directory, predict reads one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ba3us.assess.calibration import LEVEL, Calibration, check_level
from ba3us.auto.choose import train_auto
from ba3us.auto.guard import check_correctable, prior_corrected, with_verdict
from ba3us.data import Target
from ba3us.data.writing import UnwrittenError, check_new_file, new_file, only_writer
from ba3us.errors import UserError, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.registry import get
from ba3us.run import opening
from ba3us.run import storage as files
from ba3us.run.build import Model
from ba3us.run.predict import is_parquet, write_predictions
from ba3us.run.run import Run
from ba3us.run.samples import Opened
from ba3us.run.spec import Spec, check_precision
from ba3us.run.train import train_one
from ba3us.training import Callback
from ba3us.training.distributed import ProcessGroup
from ba3us.training.monitoring import DivergedError


def train(
    spec: Spec,
    opened: Opened,
    *,
    callbacks: Sequence[Callback] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Train the method of a spec, or choose one; see :func:`ba3us.run.train.train_one`."""
    train_method = train_auto if spec.method == AUTO else train_one
    return train_method(spec, opened, callbacks=callbacks, state=state, resume=resume, show=show)


def adapt(
    spec: Spec,
    out: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    show: bool = False,
) -> Run:
    """Carry out a spec and write a run directory; what ``ba3us adapt`` does.

    A run that is interrupted, diverges or can't be written leaves its state in ``out/checkpoints``. With
    `resume` it continues from there, with the same result. Any other failed training leaves nothing. Only one
    process at a time writes to `out`.
    """
    out, process_group = Path(out), ProcessGroup.current()
    first = process_group.first
    require(not (overwrite and resume), "`overwrite` and `resume` are both given: leave one of them out.")
    spec.to_yaml()  # fails now, not after training, if the spec can't be written
    check_precision(spec)
    with only_writer(out) if first else nullcontext():
        if first:
            files.check_free(out, overwrite, resume)
            files.check_outside(
                out, (spec.source, spec.target, spec.labels, spec.root, spec.classes, spec.weights)
            )
        if spec.correct_prior:
            check_correctable(get(spec.method).method)
        opened, state = opening.open_spec(spec, show), files.state_file(out)
        try:
            run, target = train(spec, opened, callbacks=callbacks, state=state, resume=resume, show=show)
            if process_group.size == 1:
                run = with_verdict(run, target, spec, opened, show)
            if spec.correct_prior:
                run = prior_corrected(run, target, opened.labels)
        except UserError as error:
            if first and not resume and not isinstance(error, DivergedError | UnwrittenError):
                files.remove_state(out)
            raise
        if first:
            files.check_free(out, overwrite, resume=True)  # another process may have been faster
            run.save(out, target, opened.paths)
        process_group.wait()
        return run


def predict(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str | None = None,
    max_error: float | None = None,
    show: bool = False,
) -> dict[str, Any]:
    """Predict more data of the run's kind with its model; what ``ba3us predict`` does.

    `out` becomes a CSV file, or a Parquet file if it ends in ``.parquet``. The table abstains on the least
    confident samples, so that at most a proportion `max_error` (0.05) of the others should be wrong.
    """
    run, data, out = Path(run), Path(data), Path(out)
    require(files.is_run(run), f"There is no run in {run}: give a folder that ba3us adapt wrote.")
    require(out.resolve() != data.resolve(), f"The output {out} is the data itself: choose another name.")
    check_new_file(out)
    require(
        out.suffix.lower() in (".csv", ".parquet"),
        f"The output {out} must end in .csv or .parquet.",
    )
    require(
        out.resolve().parent != run.resolve() or out.name not in files.TABLES,
        f"The output {out} is a file of the run itself: choose another name.",
    )
    parquet = is_parquet(out)
    model = Model.load(run / files.MODEL)
    saved = files.read_results(run / files.RESULTS, model.digest)["calibration"]
    calibration = None if saved is None else Calibration(**saved)
    if max_error is not None:
        check_level(max_error)
        require(
            calibration is not None,
            f"The run {run} has no calibration, so no error level can be guaranteed: leave `max_error` out.",
        )
    level = LEVEL if max_error is None else max_error
    spec = Spec(device=device, root=None if root is None else str(root))
    more = model.blueprint.samples.open_more(model, data, spec, show)
    with new_file(out) as part:
        counts, abstained = write_predictions(part, model, more.domain, more.paths, calibration, level, parquet)
    return {
        "run": str(run),
        "parquet" if parquet else "csv": str(out),
        "rows": len(more.domain),
        "skipped": len(more.skipped),
        "skipped_file": files.write_skipped(out.with_suffix(".skipped.csv"), {"data": list(more.skipped)}),
        "abstained": abstained,
        "max_error": level,
        "cautions": [] if calibration is None else list(calibration.cautions),
        "predicted": [{"class": c, "rows": int(n)} for c, n in zip(model.blueprint.classes, counts) if n],
    }
