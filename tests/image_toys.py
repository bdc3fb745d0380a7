"""Small image domains and backbones: coloured squares, and timm's toy networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ba3us.data.image_domains import ImageSource, ImageTarget, PixelArray

SIDE, SIZE = 36, 32
MEAN, STD = (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)
COLOURS = np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]])


def coloured(labels: np.ndarray, seed: int = 0, shift: int = 0) -> np.ndarray:
    """Noisy squares in the colour of their class, uint8 [n, SIDE, SIDE, 3]."""
    noise = np.random.default_rng(seed).normal(0, 30, (len(labels), SIDE, SIDE, 3))
    return np.clip(COLOURS[labels][:, None, None] + shift + noise, 0, 255).astype(np.uint8)


def image_domains(
    n_source: int = 12, n_target: int = 7, size: int = SIZE, **options: Any
) -> tuple[ImageSource, ImageTarget]:
    """A source of three colours and a target of the first two, brighter."""
    y, yt = np.arange(n_source) % 3, np.arange(n_target) % 2
    source = ImageSource(PixelArray(coloured(y)), y, size, MEAN, STD, **options)
    return source, ImageTarget(PixelArray(coloured(yt, 1, shift=25)), size, MEAN, STD, **options)


def toy_backbone(name: str = "test_resnet", seed: int = 0) -> tuple[torch.nn.Module, int]:
    """A timm network without its classifier, the same one at every call, and its feature size."""
    from ba3us.nn.backbones import create_backbone

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        backbone = create_backbone(name, pretrained=False)
    return backbone.module.to(memory_format=torch.channels_last), backbone.dim
