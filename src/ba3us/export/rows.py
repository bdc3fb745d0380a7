"""A few samples that an exported file and the run itself are both asked about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ba3us.data import Target, crops
from ba3us.data.decoding import UnreadableError, decode, quiet_pillow
from ba3us.data.image_domain import PixelArray
from ba3us.engine import Run, opening
from ba3us.engine.samples import Arrays, Images
from ba3us.errors import UserError

_MOST = 8


class Rows(NamedTuple):
    """Samples as a file takes them, the logits of ``ba3us predict`` for them, and where they are from."""

    inputs: np.ndarray
    logits: torch.Tensor
    origin: str


def some_rows(run: Run) -> Rows:
    """Some of the run's target if that is still there and of the same kind, else random ones."""
    try:
        found = _target_rows(run)
        return _asked(run, found, f"{len(found)} rows of the target")
    except (UserError, OSError):
        return _asked(run, _random(run), f"{_MOST} random rows, because the target can't be read")


def _asked(run: Run, found: np.ndarray, origin: str) -> Rows:
    """Let the run predict features, or squares of pixels, the way it always does."""
    model, samples = run.model, run.model.blueprint.samples
    domain: Target
    if isinstance(samples, Images):
        windows = crops.central_windows(len(found), samples.side - samples.size)
        inputs = crops.cut(torch.from_numpy(found), windows, samples.size).permute(0, 3, 1, 2)
        domain = samples.domain(PixelArray(found), "target", model.front, "cpu", cache_gb=0)
    else:
        domain = samples.domain(found, "target")
        inputs = domain.batch(slice(None), torch.float32)
    return Rows(inputs.contiguous().numpy(), torch.cat([logits for _, logits in model.outputs(domain)]), origin)


def _target_rows(run: Run) -> np.ndarray:
    if run.spec.target is None:
        raise UserError("The run was given arrays, which are not on disk.")
    samples = run.model.blueprint.samples
    if isinstance(samples, Arrays):
        features = opening.read_array(run.spec.target).features
        return np.asarray(features[_spread(len(features))])
    listed, squares = opening.list_images(run.spec.target, run.spec.root), []
    with quiet_pillow():
        for row in _spread(len(listed)):
            try:
                squares.append(decode(listed.file(row), samples.side))
            except UnreadableError:
                continue
    if not squares:
        raise UserError(f"None of the first images of {run.spec.target} can be read.")
    return np.stack(squares)


def _spread(count: int) -> np.ndarray:
    """So many rows, at most, from the first to the last."""
    return np.unique(np.linspace(0, count - 1, _MOST).astype(int))


def _random(run: Run) -> np.ndarray:
    samples, chance = run.model.blueprint.samples, np.random.default_rng(0)
    if isinstance(samples, Arrays):
        return chance.standard_normal((_MOST, *samples.shape), dtype=np.float32)
    return chance.integers(0, 256, (_MOST, samples.side, samples.side, 3), dtype=np.uint8)
