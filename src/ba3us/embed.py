"""Images → features of a pretrained backbone, computed once and cached."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ba3us.data.activations import FrozenTarget
from ba3us.data.files import FeatureSet, check_writable, write_features
from ba3us.data.image_cache import open_images
from ba3us.data.image_domains import ImageTarget
from ba3us.data.images import ImageList, Skipped, read_class_names, read_images
from ba3us.data.machine import DEFAULT_CACHE_GB
from ba3us.nn.backbones import OFFLINE, Backbone, create_backbone
from ba3us.run.storage import write_skipped


@dataclass(frozen=True)
class Embedding:
    """Features of a list of images, and the images that were skipped."""

    content: FeatureSet
    skipped: list[Skipped]


def embed(
    images: ImageList,
    backbone: Backbone,
    *,
    cache_gb: float = DEFAULT_CACHE_GB,
    workers: int | None = None,
    progress: bool = False,
    device: str = "auto",
    **options: Any,
) -> Embedding:
    """Features of all images: resize to 8/7 of the backbone's side (256 for 224), centre crop, normalise.

    They are cached on disk for later calls with the same images and weights.

    Parameters
    ----------
    images : ImageList
        Files that can't be decoded are skipped and listed with their reason.
    backbone : Backbone
        From :func:`ba3us.nn.backbones.create_backbone`; it is put into eval mode.
    cache_gb : float
        Disk space for decoded images, and as much again for features, in 10⁹ bytes; 0: no cache.
    workers : int, optional
        Threads; by default one per processor, at most 16.
    progress : bool
        Show a progress bar.
    device : str
        Where the backbone runs; "auto" is a GPU if there is one.
    **options
        Other options of :class:`~ba3us.data.activations.FrozenTarget`.
    """
    resources: dict[str, Any] = {"cache_gb": cache_gb, "workers": workers, "progress": progress}
    opened = open_images(images, backbone.side, **resources)
    preparation = (backbone.size, backbone.mean, backbone.std)
    centres = ImageTarget(opened.pixels, *preparation, views=0, device=device, name="images")
    features = FrozenTarget(centres, backbone.module, **resources, **options).centres()
    listed, origin = opened.images, (backbone.name, backbone.digest)
    content = FeatureSet(features, listed.labels, listed.class_names, listed.paths, *origin)
    return Embedding(content, opened.skipped)


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
    """Embed a folder or list file into a ``.npz`` file, as ``ba3us embed`` does; returns a summary.

    Skipped files are listed in ``NAME.skipped.csv`` beside ``NAME.npz``. `options` go to :func:`embed`.
    """
    out = Path(out)
    check_writable(out)
    names = None if classes is None else read_class_names(classes)
    images = read_images(source, root=root, labelled=labelled, class_names=names)
    network = create_backbone(backbone, weights)
    start = time.perf_counter()
    result = embed(images, network, **options)
    seconds = time.perf_counter() - start
    write_features(out, result.content)
    listing = write_skipped(out.with_suffix(".skipped.csv"), {"images": result.skipped})
    count, width = result.content.features.shape
    return {
        "file": str(out),
        "images": count,
        "features": width,
        "classes": len(result.content.class_names) if result.content.class_names else None,
        "backbone": backbone,
        "skipped": len(result.skipped),
        "skipped_file": listing,
        "seconds": round(seconds, 3),
        "images_per_second": round(count / seconds, 2),
    }
