"""The files of a run directory: their names, whether a folder is one, and reading and writing them."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ba3us.data.files import new_table, read_table
from ba3us.data.images import Skipped
from ba3us.data.writing import check_new_folder, new_file
from ba3us.errors import UserError, require
from ba3us.run.spec import FORMAT
from ba3us.training import Evaluation

SPEC, MODEL, HISTORY, EVALUATIONS = "spec.yaml", "model.safetensors", "history.csv", "evaluations.npz"
PREDICTIONS, PRESENCE, SKIPPED, CHECKPOINTS = "predictions.csv", "presence.csv", "skipped.csv", "checkpoints"
LEADERBOARD, RESULTS, REPORT = "leaderboard.csv", "results.json", "report.html"
RESULTS_FORMAT = "ba3us results 2"
TABLES = (HISTORY, PREDICTIONS, PRESENCE, SKIPPED, LEADERBOARD)
FILES = (SPEC, RESULTS, MODEL, EVALUATIONS, REPORT, *TABLES)  # all that a finished run may hold


def is_run(path: Path) -> bool:
    """Whether a folder is a finished run."""
    try:
        spec = (path / SPEC).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return spec.startswith(f"format: {FORMAT}") and (path / RESULTS).is_file()


def state_file(path: Path) -> Path:
    """Where a run stores its state while it trains."""
    return path / CHECKPOINTS / "state.ckpt"


def candidates_folder(state: Path) -> Path:
    """Where results of an automatic choice's candidates are stored, beside the `state` of a run."""
    return state.with_name(f"{state.name}.candidates")


def is_interrupted(path: Path) -> bool:
    """Whether a folder holds nothing but the state of a run that did not end, however little of it."""
    return [entry.name for entry in path.iterdir()] == [CHECKPOINTS] and _foreign_state(path) is None


def foreign_entry(path: Path) -> Path | None:
    """The first entry of a folder that no run writes; where there is no run, the first of all."""
    if is_interrupted(path):
        return None
    known = FILES if is_run(path) else ()
    for entry in sorted(path.iterdir()):
        if known and entry.name == CHECKPOINTS:
            other = _foreign_state(path)
        else:
            other = None if entry.name in known and not entry.is_dir() else entry
        if other is not None:
            return other
    return None


def _foreign_state(path: Path) -> Path | None:
    """The first entry of the folder for states that is no state; the folder itself if it is a file."""
    state, folder = state_file(path), path / CHECKPOINTS
    if not folder.is_dir():
        return folder
    known = (state.name, f".{state.name}.")  # what was being written when it was killed, too
    return next((entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(known)), None)


def can_go_on(path: Path) -> bool:
    """Whether the state in a folder is one to go on from."""
    state = state_file(path)
    return path.is_dir() and is_interrupted(path) and (state.is_file() or candidates_folder(state).is_dir())


def check_free(path: Path, overwrite: bool, resume: bool) -> None:
    """Fail before the work if a run can't be written to `path`; only what a run writes may be replaced."""
    if path.is_dir() and is_interrupted(path):
        require(
            overwrite or resume,
            f"There is an interrupted run in {path}: add `resume` to go on, or `overwrite` to start anew.",
        )
        overwrite = True
    check_new_folder(path, overwrite, foreign_entry)


def check_outside(path: Path, inputs: Iterable[str | Path | None]) -> None:
    """Fail before the work if one of the `inputs` lies in `path`, which the run replaces."""
    folder = path.resolve()
    for given in inputs:
        require(
            given is None or not os.path.exists(given) or not Path(given).resolve().is_relative_to(folder),
            f"The input {given} lies in the output {path}, which would be replaced: choose another `out`.",
        )


def remove_state(path: Path) -> None:
    """Remove the state of a run, and its folder if nothing else is in it."""
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        path.rmdir()


# --- tables -------------------------------------------------------------------------------------------------


def write_skipped(path: Path, skipped: dict[str, list[Skipped]]) -> str | None:
    """List the files left out of each domain. If there are none, remove an older list and return None."""
    if not any(skipped.values()):
        path.unlink(missing_ok=True)
        return None
    with new_file(path) as part, new_table(part, ["domain", "path", "reason"]) as write:
        for domain, items in skipped.items():
            for item in items:
                write([domain, item.path, item.reason])
    return str(path)


def read_skipped(path: Path) -> dict[str, list[Skipped]]:
    """Read what :func:`write_skipped` wrote, if anything."""
    skipped: dict[str, list[Skipped]] = {}
    for row in read_table(path) if path.is_file() else ():
        require({"domain", "path", "reason"} <= row.keys(), f"The table {path} is not of a run: adapt again.")
        skipped.setdefault(row["domain"], []).append(Skipped(row["path"], row["reason"]))
    return skipped


def write_frame(path: Path, table: pd.DataFrame) -> None:
    """Write a table whose texts a spreadsheet does not run."""
    with new_table(path, table.columns) as write:
        for row in table.itertuples(index=False, name=None):
            write(row)


def read_frame(path: Path, figures: Iterable[str]) -> pd.DataFrame:
    """Read what :func:`write_frame` wrote; `figures` are columns of numbers, if they exist."""
    rows = read_table(path)
    "".join(text for row in rows for cell in row.items() for text in cell).encode()  # ValueError: no text
    table = pd.DataFrame(rows, dtype=object)
    return table.assign(**{name: pd.to_numeric(table[name]) for name in figures if name in table})


def read_presence(path: Path, classes: list[Any]) -> list[dict[str, str]]:
    """Read the presence of these classes, in their order, as text."""
    try:
        rows = read_table(path)
        right = [row["class"] for row in rows] == [str(c) for c in classes]
        require(
            right and all(row["present"] and row["proportion"] for row in rows),
            f"The table {path} is not of this run: adapt again.",
        )
        return rows
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"The table {path} can't be read ({type(error).__name__}): adapt again.") from error


def write_results(path: Path, results: dict[str, Any], model_digest: str) -> None:
    """Write the results of a run as JSON, with a checksum over all of it and the digest of the model."""
    content = {"format": RESULTS_FORMAT, **results}
    content["checksum"] = _checksum(content, model_digest)
    text = json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8", errors="surrogatepass")


def read_results(path: Path, model_digest: str) -> dict[str, Any]:
    """Read what :func:`write_results` wrote. A changed bit, or the results of another model, are an error."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))
        checksum, known = content.pop("checksum"), content["format"] == RESULTS_FORMAT
        intact = checksum == _checksum(content, model_digest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"The results {path} can't be read ({type(error).__name__}): adapt again.") from error
    require(known, f"The results {path} are of another version of ba3us: adapt again.")
    require(intact, f"The results {path} are damaged, or belong to another model: adapt again.")
    del content["format"]
    return content


def _checksum(content: dict[str, Any], model_digest: str) -> str:
    text = model_digest + json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_evaluations(path: Path, evaluations: Iterable[Evaluation]) -> None:
    """Write every evaluation, so that those who hold labels can compute accuracy over time."""
    rows = [vars(e) for e in evaluations]
    scores = sorted({name for row in rows for name in row["scores"]})
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "scores"} if rows else {}
    columns |= {
        f"scores.{name}": np.array([row["scores"].get(name, np.nan) for row in rows]) for name in scores
    }
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]


def read_evaluations(path: Path) -> list[Evaluation]:
    """Read what :func:`write_evaluations` wrote; nothing in the file can run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {key: file[key] for key in file.files}
        single = {key: values for key, values in columns.items() if not key.startswith("scores.")}
        return [
            Evaluation(
                **{k: v[i] if v.ndim > 1 else v[i].item() for k, v in single.items()},
                scores={k[7:]: float(v[i]) for k, v in columns.items() if k.startswith("scores.")},
            )
            for i in range(len(next(iter(single.values()), ())))
        ]
    except Exception as error:
        raise UserError(
            f"The evaluations {path} can't be read ({type(error).__name__}): they are damaged; adapt again."
        ) from error
