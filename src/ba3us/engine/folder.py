"""The files of a run directory: what is where, and whether a folder is one."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ba3us.data.images import Skipped
from ba3us.data.writing import check_new_folder
from ba3us.engine.model import Model
from ba3us.engine.spec import FORMAT
from ba3us.errors import UserError, require
from ba3us.training import Evaluation

SPEC, MODEL, HISTORY, EVALUATIONS = "spec.yaml", "model.safetensors", "history.csv", "evaluations.npz"
PREDICTIONS, PRESENCE, SKIPPED, CHECKPOINTS = "predictions.csv", "presence.csv", "skipped.csv", "checkpoints"


def is_run(path: Path) -> bool:
    """Whether a folder is a finished run."""
    try:
        return (path / SPEC).read_text(encoding="utf-8").startswith(f"format: {FORMAT}")
    except (OSError, UnicodeDecodeError):
        return False


def state_file(path: Path) -> Path:
    """Where a run that goes on keeps its state."""
    return path / CHECKPOINTS / "state.ckpt"


def is_interrupted(path: Path) -> bool:
    """Whether a folder holds nothing but the state of a run that did not end."""
    return state_file(path).is_file() and [entry.name for entry in path.iterdir()] == [CHECKPOINTS]


def check_free(path: Path, overwrite: bool, resume: bool) -> None:
    """Fail before the work if a run can't be written to `path`."""
    if path.is_dir() and is_interrupted(path):
        require(
            overwrite or resume,
            f"There is an interrupted run in {path}: add --resume to go on, or --overwrite to start anew.",
        )
        overwrite = True
    check_new_folder(path, overwrite, lambda folder: is_run(folder) or is_interrupted(folder))


def remove_state(path: Path) -> None:
    """Take the state of a run away, and its folder if nothing else is in it."""
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()


# --- tables -------------------------------------------------------------------------------------------------


def write_predictions(path: Path, model: Model, domain: Any, paths: list[str] | None) -> np.ndarray:
    """One line per row, batch by batch; returns how many rows each class got."""
    classes = model.blueprint.classes
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


def write_skipped(path: Path, skipped: dict[str, list[Skipped]]) -> str | None:
    """List what was left out of each domain; without any, an older list is taken away and None returned."""
    if not any(skipped.values()):
        path.unlink(missing_ok=True)
        return None
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = csv.writer(file, lineterminator=os.linesep)
        rows.writerow(["domain", "path", "reason"])
        rows.writerows((domain, item.path, item.reason) for domain, items in skipped.items() for item in items)
    return str(path)


def read_skipped(path: Path) -> dict[str, list[Skipped]]:
    """What :func:`write_skipped` wrote, if anything."""
    found: dict[str, list[Skipped]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault(row["domain"], []).append(Skipped(row["path"], row["reason"]))
    return found


def write_presence(path: Path, presence: pd.DataFrame) -> None:
    """With words for yes and no."""
    words = presence.assign(present=np.where(presence["present"], "yes", "no"))
    words.to_csv(path, index=False)


def write_evaluations(path: Path, evaluations: Iterable[Evaluation]) -> None:
    """Every look at the target, so that accuracy over time can be worked out by those who hold labels."""
    rows = [vars(e) for e in evaluations]
    scores = sorted({name for row in rows for name in row["scores"]})
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "scores"} if rows else {}
    columns |= {
        f"scores.{name}": np.array([row["scores"].get(name, np.nan) for row in rows]) for name in scores
    }
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]


def read_evaluations(path: Path) -> list[Evaluation]:
    """What :func:`write_evaluations` wrote; nothing in the file can run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {key: file[key] for key in file.files}
        plain = {key: values for key, values in columns.items() if not key.startswith("scores.")}
        return [
            Evaluation(
                **{k: v[i] if v.ndim > 1 else v[i].item() for k, v in plain.items()},
                scores={k[7:]: float(v[i]) for k, v in columns.items() if k.startswith("scores.")},
            )
            for i in range(len(next(iter(plain.values()), ())))
        ]
    except Exception as error:
        raise UserError(
            f"The evaluations {path} can't be read ({type(error).__name__}): they are damaged; adapt again."
        ) from error
