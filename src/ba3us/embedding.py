"""Images → features: what a pretrained backbone sees in them, once and for all."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional as F

from ba3us.data.decoding import map_in_order, quiet_pillow
from ba3us.data.files import FeatureSet, check_writable, write_features
from ba3us.data.images import ImageList, Skipped, read_class_names, read_images
from ba3us.data.one_pass import OnePass, Squares
from ba3us.errors import UserError, require
from ba3us.nn.backbones import OFFLINE, Backbone, create_backbone
from ba3us.nn.inference import for_inference

PRECISIONS = ("auto", "float32", "bfloat16")
_CLOSE = 0.999  # cosine to float32 below which bfloat16 is not used


@dataclass(frozen=True)
class Embedding:
    """Features of a list of images, and the images that gave none."""

    content: FeatureSet
    skipped: list[Skipped]


def embed(
    images: ImageList,
    backbone: Backbone,
    *,
    batch_size: int | None = None,
    workers: int | None = None,
    precision: str = "auto",
    device: str = "auto",
    cache_gb: float = 0.0,
    progress: bool = False,
) -> Embedding:
    """Features of all images: resize to 8/7 of the backbone's side (256 for 224), centre crop, normalise.

    Parameters
    ----------
    images : ImageList
        Files that can't be decoded are left out and listed with their reason.
    backbone : Backbone
        From :func:`ba3us.nn.backbones.create_backbone`; it is put into eval mode.
    batch_size : int, optional
        By default 4 on a CPU and 128 on a GPU.
    workers : int, optional
        Threads that decode, and on a CPU also run the backbone on batches of their own, so that no core
        waits for another within an operation; by default one per core, at most 16.
    precision : {"auto", "float32", "bfloat16"}
        "auto" takes bfloat16 where the processor computes in it and the first batch comes out the same
        (cosine at least 0.999 for every image).
    device : str
        "auto" is a GPU if there is one.
    cache_gb : float
        What all decoded images of this user may take on disk, in 10⁹ bytes, for another pass over them;
        0: no cache.
    progress : bool
        Show a bar.
    """
    require(precision in PRECISIONS, f"Unknown precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")
    for name, value in (("batch_size", batch_size), ("workers", workers)):
        require(value is None or value > 0, f"{name} is {value}: give at least 1.")
    place = _device(device)
    workers = workers or min(_cores(), 16)
    size = min(batch_size or (4 if place.type == "cpu" else 128), -(-len(images) // workers))
    chunks = [range(start, min(start + size, len(images))) for start in range(0, len(images), size)]
    once = OnePass(images, round(backbone.size * 8 / 7), cache_gb)
    features = np.empty((len(images), backbone.dim), dtype=np.float32)
    kept: list[int] = []
    skipped: list[Skipped] = list(images.skipped)
    with closing(once), _bar(progress) as bar:
        task = bar.add_task("", total=len(images))
        for batch, out in _stream(once, chunks, _Seer(backbone, place, precision), workers):
            features[len(kept) : len(kept) + len(batch.rows)] = out
            kept += batch.rows
            skipped += batch.skipped
            bar.advance(task, len(batch.rows) + len(batch.skipped))
    if not kept:
        first = skipped[-len(images)]
        raise UserError(
            f"None of the {len(images)} images can be read (the first, {first.path!r}: {first.reason}): "
            f"check the files."
        )
    labels = None if images.labels is None else images.labels[kept]
    paths = [images.paths[row] for row in kept]
    found = FeatureSet(features[: len(kept)], labels, images.class_names, paths, backbone.name)
    return Embedding(found, skipped)


def embed_to_file(
    source: str | Path,
    out: str | Path,
    *,
    backbone: str = OFFLINE,
    weights: str | Path | None = None,
    root: str | Path | None = None,
    classes: str | Path | None = None,
    labelled: bool | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Embed a folder or list file into a ``.npz`` file; what ``ba3us embed`` does.

    Files left out are written to ``NAME.skipped.csv`` beside ``NAME.npz``. `options` go to :func:`embed`.
    Returns a summary for people and machines.
    """
    out = Path(out)
    check_writable(out)
    names: Sequence[str] | None = None if classes is None else read_class_names(classes)
    images = read_images(source, root=root, labelled=labelled, class_names=names)
    network = create_backbone(backbone, weights)
    start = time.perf_counter()
    result = embed(images, network, **options)
    seconds = time.perf_counter() - start
    write_features(out, result.content)
    listing = _write_skipped(out.with_suffix(".skipped.csv"), result.skipped)
    return {
        "file": str(out),
        "images": len(result.content.features),
        "features": result.content.features.shape[1],
        "classes": len(result.content.class_names) if result.content.class_names else None,
        "backbone": backbone,
        "skipped": len(result.skipped),
        "skipped_file": listing,
        "seconds": round(seconds, 3),
        "images_per_second": round(len(result.content.features) / seconds, 2),
    }


def prepared(pixels: Tensor, backbone: Backbone) -> Tensor:
    """Squares uint8 [n, s, s, 3] → the centre as the backbone wants it, float32 [n, 3, size, size]."""
    edge = (pixels.shape[1] - backbone.size) // 2
    crop = pixels[:, edge : edge + backbone.size, edge : edge + backbone.size].permute(0, 3, 1, 2)
    mean = torch.tensor(backbone.mean, device=pixels.device).view(3, 1, 1) * 255
    std = torch.tensor(backbone.std, device=pixels.device).view(3, 1, 1) * 255
    return crop.to(torch.float32, memory_format=torch.channels_last).sub_(mean).div_(std)


_Seen = tuple[Squares, np.ndarray]  # with features [n, d]


class _Seer:
    """The backbone in eval mode; may be called from several threads."""

    def __init__(self, backbone: Backbone, place: torch.device, precision: str) -> None:
        self.backbone, self.place = backbone, place
        whole = backbone.module.eval().to(place).to(memory_format=torch.channels_last)
        self.module = for_inference(whole, backbone.size)
        self.half = precision == "bfloat16"
        self.unsettled = precision == "auto" and _bfloat16_is_native(place)

    def settle(self, batch: Squares) -> None:
        """Take bfloat16 if it gives the same features for this batch."""
        if not batch.rows:
            return
        exact = self(batch)[1]
        self.half = True
        quick = self(batch)[1]
        cosine = F.cosine_similarity(torch.from_numpy(exact), torch.from_numpy(quick))
        self.half = bool(cosine.min() >= _CLOSE)

    def __call__(self, batch: Squares) -> _Seen:
        if not batch.rows:
            return batch, np.empty((0, self.backbone.dim), dtype=np.float32)
        with torch.inference_mode(), torch.autocast(self.place.type, torch.bfloat16, enabled=self.half):
            out = self.module(prepared(torch.from_numpy(batch.pixels).to(self.place), self.backbone))
        return batch, out.float().cpu().numpy()


def _stream(once: OnePass, chunks: list[range], seer: _Seer, workers: int) -> Iterator[_Seen]:
    """Batches and their features, in order."""

    def read_and_see(rows: range) -> _Seen:
        return seer(once.read(rows))

    on_cpu = seer.place.type == "cpu"
    with quiet_pillow(), _torch_threads(max(1, _cores() // workers) if on_cpu else _cores()):
        if seer.unsettled:
            seer.settle(once.read(chunks[0]))
        if on_cpu:
            yield from map_in_order(read_and_see, chunks, workers)
        else:
            yield from map(seer, map_in_order(once.read, chunks, workers))


@contextmanager
def _torch_threads(most: int) -> Iterator[None]:
    """Let torch compute with at most so many threads per operation for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, most))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bar(progress: bool) -> Progress:
    columns = (TextColumn("Embedding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not progress)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} can't be used here: choose 'cpu', or 'auto'.") from error
    return device


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bfloat16_is_native(device: torch.device) -> bool:
    """Whether the processor has instructions for bfloat16; elsewhere it is emulated."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # newer than our oldest torch
    return device.type == "cpu" and bool(capabilities.get("avx512_bf16", False))


def _write_skipped(path: Path, skipped: list[Skipped]) -> str | None:
    """List what was left out; without any, take away an older run's list."""
    if not skipped:
        path.unlink(missing_ok=True)
        return None
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "reason"])
        rows.writerows((item.path, item.reason) for item in skipped)
    return str(path)
