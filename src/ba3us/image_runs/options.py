"""What can be chosen about images, backbone and device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ba3us.data.cache import DEFAULT_GIGABYTES
from ba3us.errors import require
from ba3us.nn.backbones import OFFLINE

PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}  # ours → Fabric's


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How images are shown to which backbone, and how the work is done.

    Attributes
    ----------
    backbone, weights
        As for :func:`ba3us.nn.backbones.create_backbone`.
    train : str
        ``"head"``, ``"tail"``, ``"all"`` or the name of a stage; see :func:`ba3us.nn.depth.cut`.
    views : int
        Augmented views per image whose activations are kept, where part of the backbone is frozen. With
        ``train="all"``, and for methods that need pixels, every crop is a new one.
    size : int, optional
        Side of the crops in pixels, instead of the backbone's own.
    ten_crop : bool
        Offer ten crops to methods that refresh from them.
    cache_gb : float
        What decoded images may take on disk, and as much again activations, in 10⁹ bytes; 0: no cache.
    activations : {"float16", "float32"}
        How activations are kept.
    precision : {"float32", "bfloat16", "float16"}
        Of training; the last two by autocast, with losses in float32.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    compile : bool
        Compile what is trained of the backbone with ``torch.compile``.
    workers : int, optional
        Threads that decode images; by default one per core, at most 16.
    """

    backbone: str = OFFLINE
    weights: str | Path | None = None
    train: str = "tail"
    views: int = 4
    size: int | None = None
    ten_crop: bool = False
    cache_gb: float = DEFAULT_GIGABYTES
    activations: str = "float16"
    precision: str = "float32"
    device: str = "auto"
    compile: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        require(
            self.precision in PRECISIONS,
            f"Unknown precision {self.precision!r}: choose one of {', '.join(PRECISIONS)}.",
        )
        require(
            self.device in ("auto", "cpu", "cuda"), f"Unknown device {self.device!r}: choose auto, cpu or cuda."
        )
        require(
            self.device != "cuda" or torch.cuda.is_available(),
            "The device 'cuda' can't be used here: choose cpu, or auto.",
        )
        require(self.size is None or self.size >= 8, f"The size is {self.size}: give at least 8 pixels.")
        require(self.views >= 1, f"The number of views is {self.views}: it must be at least 1.")

    @property
    def place(self) -> str:
        """The device, decided."""
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return self.device
