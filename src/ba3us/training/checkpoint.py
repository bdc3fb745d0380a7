"""Saving and reading the state of a run, so that it can go on bit for bit."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from ba3us import __version__
from ba3us.data.writing import new_file
from ba3us.errors import UserError, require

_FORMAT = "ba3us run 4"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts) at once or not at all."""
    with new_file(path) as part:
        try:
            with part.open("wb") as file:
                torch.save({"format": _FORMAT, "written_by": _program(), **state}, file)
        except RuntimeError as error:  # of torch's own, when the system has refused to write
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def beside(path: Path, kind: str) -> Path:
    """Where another state of the same run lies."""
    return path.with_name(f"{path.name}.{kind}")


def load(path: Path) -> dict[str, Any]:
    """Read what :func:`save` wrote; loading can't run code."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint at {path}: check the path, or start without resuming.")
    try:
        with zipfile.ZipFile(path) as file:  # torch looks at no checksum, and reads what is marked as a folder
            if file.testzip() is not None or any(record.external_attr for record in file.infolist()):
                raise zipfile.BadZipFile
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise UserError(
            f"The checkpoint {path} can't be read ({type(error).__name__}): it is damaged, "
            "start without resuming."
        ) from error
    require(
        isinstance(state, dict) and state.get("format") == _FORMAT,
        f"The file {path} is not a checkpoint of a run, or of another version: start without resuming.",
    )
    writer = state.get("written_by")
    require(
        writer == _program(),
        f"The checkpoint {path} was written by {writer}, but this is {_program()}, which need not go on "
        "the same way: use what wrote it, or start without resuming.",
    )
    return state


def _program() -> str:
    return f"ba3us {__version__} with torch {torch.__version__}"


def random_state() -> dict[str, torch.Tensor]:
    """Where torch's random numbers stand, on the CPU and on the GPU that this process uses, if it does."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_state(states: dict[str, torch.Tensor]) -> None:
    """Go on from what :func:`random_state` gave."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
