"""Generated stand-ins for the paper's datasets, for rehearsals only: right names and counts, made-up pixels.

A class is a mosaic of colours, a domain a tint and a contrast of its own, so that learning is possible; what
is learned says nothing about the real datasets. They lie as the real ones are expected to::

    ROOT/office31/amazon | dslr | webcam / CLASS / 0001.jpg
    ROOT/office-home/Art | Clipart | Product | RealWorld / CLASS / 0001.jpg
    ROOT/imagenet-caltech/imagenet_train | imagenet_val / WORDNET ID / 0001.jpg      1000 classes
    ROOT/imagenet-caltech/caltech256 / 001.ak47 … 256.toad / 0001.jpg                 256 classes
    ROOT/imagenet-caltech/lists / caltech84_imagenet_labels.txt | imagenet84_caltech_labels.txt
    ROOT/GENERATED.txt

84 Caltech folders are the same things as 84 ImageNet classes, and look the same here. I->C has 1000 source
classes and the Caltech images of the 84, labelled by ImageNet's numbers; C->I has 256 and ImageNet's validation
images of the 84, labelled by Caltech's (folder number - 1): the two list files (``path label``, paths from
ROOT/imagenet-caltech). An ImageNet number is the place among the sorted WordNet ids. Only the ids of the 84 are
known here: the others are called by the one before them and their number, so that the order is right. 1,300
images a class stand for ImageNet's training images, which were never counted by class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ba3us.bench.domains import STAND_IN
from ba3us.data.writing import new_file, new_folder
from ba3us.errors import did_you_mean, optional_import, require

SIDE, _BLOCKS = 16, 4  # pixels, and colours along a side
_TRAIN, _VAL, _IMAGENET_CLASSES = 1300, 50, 1000
_NOTE = "Pictures made up by ba3us for rehearsals: no figure measured on them means anything.\n"

Counts = dict[str, dict[str, int]]


def counts(protocol: str) -> Counts:
    """Images by domain folder and class folder, as the paper's protocol has them."""
    content = _published()
    require(protocol in content, f"No layout is known for {protocol!r}: {did_you_mean(protocol, content)}")
    found = content[protocol]
    made = {domain: dict(zip(found["classes"], images)) for domain, images in found["images"].items()}
    if protocol == "imagenet-caltech":
        names = _imagenet(dict(found["shared"].values()))
        made |= {"imagenet_train": dict.fromkeys(names, _TRAIN), "imagenet_val": dict.fromkeys(names, _VAL)}
    return made


def shared_classes() -> dict[str, str]:
    """The 84 Caltech folders that ImageNet has, too, with their WordNet ids."""
    return {folder: wnid for folder, (wnid, _) in _published()["imagenet-caltech"]["shared"].items()}


def generate(protocol: str, root: Path, fraction: float = 1.0, minimum: int = 2, seed: int = 0) -> Counts:
    """Write the images of a protocol below `root`; returns how many, by domain and class folder.

    Parameters
    ----------
    protocol : {"office31", "office-home", "imagenet-caltech"}
        Which dataset.
    root : Path
        ROOT above.
    fraction : float
        The proportion of every class that is made, in (0, 1].
    minimum : int
        Images of a class at least, unless the real one has fewer.
    seed : int
        For the pixels.
    """
    require(0 < fraction <= 1, f"The fraction is {fraction}: it must be above 0 and at most 1.")
    full = counts(protocol)
    made = {d: {c: max(min(n, minimum), round(fraction * n)) for c, n in of.items()} for d, of in full.items()}
    same = shared_classes() if protocol == "imagenet-caltech" else {}
    for domain, classes in made.items():
        with new_folder(root / protocol / domain) as folder:
            for name, number in classes.items():
                _write_class(folder / name, number, same.get(name, name), domain, seed)
    if same:
        _write_lists(root / protocol, made, same)
    with new_file(root / STAND_IN) as part:
        part.write_text(_NOTE, encoding="utf-8")
    return made


def _published() -> dict[str, Any]:
    """Class folders, images by class, and which Caltech folder is which ImageNet class."""
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _write_class(folder: Path, number: int, looks_like: str, domain: str, seed: int) -> None:
    image = optional_import("PIL.Image", "vision")
    folder.mkdir()
    for i, pixels in enumerate(_pictures(number, looks_like, domain, seed), 1):
        image.fromarray(pixels).save(folder / f"{i:04d}.jpg", quality=90)


def _pictures(number: int, looks_like: str, domain: str, seed: int) -> Iterator[np.ndarray]:
    """Mosaics of a class as a domain shows it, uint8 [SIDE, SIDE, 3]."""
    mosaic = np.random.default_rng(crc32(looks_like.encode())).uniform(30, 225, (_BLOCKS, _BLOCKS, 3))
    shift = np.random.default_rng(crc32(domain.encode()))
    contrast, tint = shift.uniform(0.5, 1.0), shift.uniform(-45, 45, 3)
    draw = np.random.default_rng([seed, crc32(f"{domain}/{looks_like}".encode())])
    for _ in range(number):
        colours = 128 + contrast * (mosaic - 128) + tint + draw.normal(0, 18, mosaic.shape)
        pixels = np.kron(colours, np.ones((SIDE // _BLOCKS, SIDE // _BLOCKS, 1)))
        yield np.clip(pixels, 0, 255).astype(np.uint8)


def _imagenet(known: dict[str, int]) -> list[str]:
    """1000 names in sorted order, with the known WordNet ids at their places."""
    place, before, names = {number: wnid for wnid, number in known.items()}, "n00000000", []
    for number in range(_IMAGENET_CLASSES):
        before = place.get(number, before)
        names.append(before if number in place else f"{before}-{number:04d}")
    return names


def _write_lists(root: Path, made: Counts, same: dict[str, str]) -> None:
    """The two targets, labelled with the numbers of their sources' classes."""
    numbers = {domain: {name: i for i, name in enumerate(sorted(made[domain]))} for domain in made}
    lists = {
        "caltech84_imagenet_labels": [("caltech256", c, numbers["imagenet_train"][w]) for c, w in same.items()],
        "imagenet84_caltech_labels": [("imagenet_val", w, numbers["caltech256"][c]) for c, w in same.items()],
    }
    for name, rows in lists.items():
        lines = (f"{d}/{c}/{i:04d}.jpg {label}\n" for d, c, label in rows for i in range(1, made[d][c] + 1))
        with new_file(root / "lists" / f"{name}.txt") as part:
            part.write_text("".join(lines), encoding="utf-8")
