"""Saving and reading the state of a run, so that it can go on bit for bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ba3us.errors import UserError


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts) at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save(state, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """Read what :func:`save` wrote; loading can't run code."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint at {path}: check the path, or start without resuming.")
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise UserError(
            f"The checkpoint {path} can't be read ({type(error).__name__}): it is damaged."
        ) from error
