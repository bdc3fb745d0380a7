"""The model of a run as one network: from what a user holds to probabilities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ba3us import __version__
from ba3us.data import crops
from ba3us.data.decoding import DRAFT
from ba3us.engine.model import Model
from ba3us.engine.samples import Images

PROBABILITIES, LOGITS = "probabilities", "logits"


class Served(nn.Module):
    """Samples as they are → probabilities and logits of some classes, both float32 [n, classes].

    It is all that ``ba3us predict`` does after an image is cropped: normalisation, the frozen front and the
    method's own way to predict.

    Parameters
    ----------
    model : Model
        Of a run; it is put into eval mode.
    classes : sequence of int, optional
        The columns to keep, with probabilities that sum to one again; all by default.
    """

    columns: Tensor | None

    def __init__(self, model: Model, classes: Sequence[int] | None = None) -> None:
        super().__init__()
        self.front, self.module, self.samples = model.front, model.module, model.blueprint.samples
        self.register_buffer("columns", None if classes is None else torch.tensor(classes))
        self.eval().requires_grad_(False)

    @property
    def of_images(self) -> bool:
        """Whether samples are pixels."""
        return isinstance(self.samples, Images)

    @property
    def input(self) -> str:
        """What the samples are called in the file."""
        return "pixels" if self.of_images else "features"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        samples = self.samples
        return (3, samples.size, samples.size) if isinstance(samples, Images) else tuple(samples.shape)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 pixels [n, 3, size, size] or float32 arrays [n, …] → (probabilities, logits)."""
        dtype, samples = next(self.module.parameters()).dtype, self.samples
        if isinstance(samples, Images):
            x = crops.normalised(x.permute(0, 2, 3, 1), tuple(samples.mean), tuple(samples.std))
        if self.front is not None:
            x = self.front(x)
        logits = self.module.method.predict(self.module.network, x.to(dtype))[1]
        logits = logits if self.columns is None else logits[:, self.columns]
        return logits.softmax(dim=1).float(), logits.float()

    @property
    def dtype(self) -> torch.dtype:
        """Of samples."""
        return torch.uint8 if self.of_images else torch.float32


def description(model: Model, classes: list[Any]) -> dict[str, str]:
    """What a file says of itself, as texts; lists and tables are JSON."""
    about: dict[str, Any] = {
        "ba3us_version": __version__,
        "model_digest": model.digest,
        "method": model.blueprint.method,
        "classes": json.dumps(classes),
    }
    if isinstance(model.blueprint.samples, Images):
        about["image"] = json.dumps(_preparation(model.blueprint.samples))
    return about


def _preparation(samples: Images) -> dict[str, Any]:
    """What to do with an image before the file is given its pixels, and what the file does with them."""
    offset = int(crops.central_windows(1, samples.side - samples.size).top[0])
    return {
        "size": samples.size,
        "resize": samples.side,
        "offset": offset,
        "draft": DRAFT,
        "before": f"upright by EXIF, RGB, transparency on white; a JPEG may be decoded smaller (Pillow's draft "
        f"mode), to no less than {DRAFT} times the side; resized to {samples.side}x{samples.side} (Pillow, "
        f"bilinear) without keeping its aspect; {samples.size}x{samples.size} cut out at ({offset}, {offset})",
        "inside": "(pixels / 255 - mean) / std",
        "mean": list(samples.mean),
        "std": list(samples.std),
    }
