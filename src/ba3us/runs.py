"""Runs: from feature files to a run directory, and from that to predictions for more data.

A run directory holds ``config.yaml`` (what was done), ``history.csv``, ``model.safetensors`` (weights, and in
its header all that is needed to rebuild the network), ``predictions.csv`` and ``presence.csv``. It appears as a
whole or not at all.
"""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from ba3us import __version__
from ba3us.data import Target
from ba3us.data.files import FeatureSet, read_features, read_labels
from ba3us.data.writing import check_new_file, check_new_folder, new_file, new_folder
from ba3us.errors import UserError, require
from ba3us.estimator import PartialAdapter
from ba3us.selection import class_shares, present_classes
from ba3us.training import Evaluation, Model
from ba3us.training.team import Team

FORMAT = "ba3us run 1"
MODEL = "model.safetensors"


def adapt(
    source: str | Path,
    target: str | Path,
    out: str | Path,
    *,
    labels: str | Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
    **parameters: Any,
) -> dict[str, Any]:
    """Adapt from one feature file to another and write a run directory; what ``ba3us adapt`` does.

    Parameters
    ----------
    source, target : path
        ``.npz`` (features, labels, class_names, paths) or ``.npy`` (features). Labels in the target's file
        are not used.
    out : path
        The run directory; it must not hold a run yet, unless `overwrite`.
    labels : path, optional
        A ``.npy`` file with the source's labels, where its own file has none.
    seed : int
        Decides initial weights, batches and dropout.
    **parameters
        Others of :class:`~ba3us.estimator.PartialAdapter`.

    Returns
    -------
    dict
        A summary of JSON values, with one row per class under ``classes``.
    """
    out, team = Path(out), Team.current()
    if team.first:
        check_new_folder(out, overwrite, is_run)
    found, given = _read(source), _read(target)
    y = _labels(found, Path(source), labels)
    _check_backbones(found.backbone, given.backbone, target)
    start = time.perf_counter()
    adapter = PartialAdapter(random_state=seed, **parameters).fit(found.features, y, given.features)
    seconds = time.perf_counter() - start
    config = _config(adapter, source, found, target, given)
    presence = _presence(adapter)
    if team.first:
        check_new_folder(out, overwrite, is_run)  # somebody may have been faster
        with new_folder(out) as folder:
            _write_run(folder, adapter, config, presence, given)
    team.wait()
    return {
        "run": str(out),
        "method": config["method"],
        "source_rows": len(found.features),
        "target_rows": len(given.features),
        "selected": config["selected"],
        "seconds": round(seconds, 2),
        "classes_present": adapter.classes_present_.tolist(),
        "classes": presence.to_dict(orient="records"),
    }


def predict(run: str | Path, data: str | Path, out: str | Path) -> dict[str, Any]:
    """Predict a feature file with the model of a run, into a CSV file; what ``ba3us predict`` does."""
    run, data, out = Path(run), Path(data), Path(out)
    require(is_run(run), f"There is no run in {run}: give a folder that ba3us adapt wrote.")
    require(out.resolve() != data.resolve(), f"The output {out} is the data itself: choose another name.")
    check_new_file(out)
    model, about = Model.load(run / MODEL)
    classes: Any = about.get("classes")
    require(
        isinstance(classes, list) and len(classes) == model.blueprint.classes,
        f"The model of {run} does not name its classes: it is damaged; adapt again.",
    )
    found = _read(data)
    _check_backbones(about.get("backbone"), found.backbone, data)
    shape, wanted = found.features.shape[1:], (model.blueprint.features,)
    require(shape == wanted, f"A sample of {data} has shape {shape}, of the run {wanted}: give the same kind.")
    domain = Target(found.features, name=f"data of {data}")
    with new_file(out) as part:
        counts = write_predictions(part, model, classes, domain, found.paths)
    return {
        "run": str(run),
        "csv": str(out),
        "rows": len(domain),
        "predicted": [{"class": c, "rows": int(n)} for c, n in zip(classes, counts) if n],
    }


# --- reading ------------------------------------------------------------------------------------------------


def _read(path: str | Path) -> FeatureSet:
    """A feature file."""
    path = Path(path)
    require(
        not path.is_dir(), f"{path} is a folder: turn its images into a feature file with ba3us embed first."
    )
    return read_features(path)


def _labels(found: FeatureSet, path: Path, file: str | Path | None) -> np.ndarray:
    """The source's labels, as class names where the file has them."""
    if file is not None:
        require(found.labels is None, f"{path} has labels of its own: leave --labels out.")
        return _text(read_labels(file), file)
    if found.labels is None:
        raise UserError(f"{path} has no labels: save them in it under 'labels', or give a file with --labels.")
    names = found.class_names
    if names is None or found.labels.dtype.kind not in "iu":
        return _text(found.labels, path)
    twice = {name for name in names if names.count(name) > 1}
    require(not twice, f"{path} has two classes called {min(twice, default='')!r}: give each its own name.")
    return np.array(names)[found.labels]


def _text(labels: np.ndarray, path: str | Path) -> np.ndarray:
    """Labels of bytes as text; all others as they are."""
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise UserError(f"The labels of {path} are bytes that are no text: save them as strings.") from error


def _check_backbones(source: str | None, other: str | None, path: str | Path) -> None:
    require(
        source is None or other is None or source == other,
        f"The features of {path} are of {other!r}, the source's of {source!r}: use one backbone for both.",
    )


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory."""
    try:
        content = (path / "config.yaml").read_text(encoding="utf-8")
        return content.startswith(f"format: {FORMAT}")
    except (OSError, UnicodeDecodeError):
        return False


# --- writing ------------------------------------------------------------------------------------------------


def _write_run(
    folder: Path, adapter: PartialAdapter, config: dict[str, Any], presence: pd.DataFrame, target: FeatureSet
) -> None:
    write_tables(folder, config, adapter.history_, presence)
    classes = adapter.classes_.tolist()
    adapter.model_.save(folder / MODEL, {"classes": classes, "backbone": config["backbone"]})
    domain = Target(target.features)
    write_predictions(folder / "predictions.csv", adapter.model_, classes, domain, target.paths)


def write_tables(folder: Path, config: dict[str, Any], history: pd.DataFrame, presence: pd.DataFrame) -> None:
    """``config.yaml``, ``history.csv`` and ``presence.csv``."""
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    history.to_csv(folder / "history.csv", index=False)
    words = presence.assign(present=np.where(presence["present"], "yes", "no"))
    words.to_csv(folder / "presence.csv", index=False)


def _config(
    adapter: PartialAdapter, source: str | Path, found: FeatureSet, target: str | Path, given: FeatureSet
) -> dict[str, Any]:
    assert adapter.selected_ is not None
    best = adapter.evaluations_[adapter.selected_]
    blueprint = adapter.model_.blueprint
    return {
        "format": FORMAT,
        "version": __version__,
        "method": blueprint.method,
        "seed": adapter.random_state,
        "threads": adapter.threads or torch.get_num_threads(),
        "processes": Team.current().size,
        "source": {"file": str(source), "rows": len(found.features), "classes": blueprint.classes},
        "target": {"file": str(target), "rows": len(given.features)},
        "features": blueprint.features,
        "backbone": found.backbone,
        "selected": {"phase": best.phase, "step": best.step, "mean_entropy": round(best.scores["entropy"], 6)},
        "options": blueprint.options,
    }


def _presence(adapter: PartialAdapter) -> pd.DataFrame:
    assert adapter.selected_ is not None
    return presence_table(adapter.classes_, adapter.evaluations_[adapter.selected_])


def presence_table(classes: Any, best: Evaluation) -> pd.DataFrame:
    """One row per class: its share of target predictions, its mean probability, whether it is present."""
    shares = class_shares(best.predictions, len(classes))
    return pd.DataFrame(
        {
            "class": classes,
            "share": shares.round(6),
            "mean_probability": best.mean_probabilities.astype(float).round(6),
            "present": present_classes(shares),
        }
    )


def write_predictions(
    path: Path, model: Model, classes: list[Any], domain: Target, paths: list[str] | None
) -> np.ndarray:
    """One line per row, batch by batch; returns how many rows each class got."""
    counts = np.zeros(len(classes), dtype=np.int64)
    row = 0
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        lines = csv.writer(file, lineterminator=os.linesep)
        lines.writerow(["row" if paths is None else "path", "class", "probability"])
        for _, logits in model.outputs(domain):
            probability, label = logits.softmax(dim=1).max(dim=1)
            best = label.numpy()
            counts += np.bincount(best, minlength=len(classes))
            for p, c in zip(probability.tolist(), best.tolist()):
                lines.writerow([row if paths is None else paths[row], classes[c], f"{p:.6f}"])
                row += 1
    return counts
