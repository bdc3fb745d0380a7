"""The domains of a protocol on disk: find them, count them, compare with what is expected, pair them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ba3us.bench.protocol import Protocol, Subset, Task
from ba3us.data.digits import write_digits
from ba3us.data.files import read_features
from ba3us.data.image_cache import map_in_order
from ba3us.data.images import ImageList, check_distinct, read_images
from ba3us.data.machine import cpu_count
from ba3us.data.store import cache_folder
from ba3us.errors import UserError, require

FEATURES = ".npz"
STAND_IN = "GENERATED.txt"  # beside generated data; its text stands below every table
_SAMPLED = 1 << 16  # bytes read at either end of a large image
PACKAGE = "package:"  # domains that come with installed packages


class File(NamedTuple):
    """A file or folder of samples, a digest of its content, and the root of a list file's paths."""

    path: Path
    digest: str
    root: Path | None = None

    @property
    def images(self) -> bool:
        """Whether it is a folder or list of images, not a feature file."""
        return self.path.suffix != FEATURES


@dataclass(frozen=True, eq=False)
class Domain:
    """Samples of one domain: their file, and their classes by name."""

    name: str
    file: File
    classes: np.ndarray
    names: tuple[str, ...]
    backbone: str | None

    @property
    def counts(self) -> Counter[str]:
        """Samples by class, classes without any left out."""
        return Counter(self.classes.tolist())


@dataclass(frozen=True, eq=False)
class Pair:
    """The training data of a task: files, indices of the chosen samples, and labels of the source only.

    `arrays` are the samples of both files, where the files themselves are not on this machine.
    """

    source: File
    target: File
    source_rows: np.ndarray
    source_labels: np.ndarray
    target_rows: np.ndarray
    num_classes: int
    arrays: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, eq=False)
class Dataset:
    """A task with one choice of target classes; the target's labels are for scoring afterwards."""

    task: str
    variant: str
    pair: Pair
    labels: np.ndarray
    classes: tuple[str, ...]
    digest: str


def find_domains(
    protocol: Protocol, root: Path | None, images: bool = False
) -> tuple[dict[str, Domain], list[str]]:
    """The domains that the protocol's tasks need, and problems with them, a sentence each.

    Of features and images of one domain, `images` chooses the images; else the first path is used.
    """
    folder = protocol.folder if root is None else root
    require(folder.is_dir(), f"The folder {folder} is not there: give the one with the data (`root`).")
    inside = folder / (protocol.published or protocol.name)  # one root may hold several datasets
    folder = inside if inside.is_dir() else folder
    domains, problems = {}, []
    for name in dict.fromkeys(name for task in protocol.tasks for name in (task.source, task.target)):
        try:
            domains[name] = _open(protocol, name, folder, images)
        except UserError as error:
            problems.append(str(error))
    backbones = {d.backbone: d.name for d in domains.values() if d.backbone is not None}
    if len(backbones) > 1:
        origins = ", ".join(f"{domain} with {backbone}" for backbone, domain in sorted(backbones.items()))
        problems.append(
            f"The features of {protocol.name} come from several backbones ({origins}): use one for all."
        )
    return domains, problems + _differences(protocol, domains)


def dataset(protocol: Protocol, domains: dict[str, Domain], task: Task, subset: Subset) -> Dataset:
    """Numbers the classes as the source does and keeps the target's rows of the chosen ones."""
    source, target = domains[task.source], domains[task.target]
    classes = protocol.classes or tuple(name for name in source.names if name in source.counts)
    for name in classes:
        require(
            name in source.counts,
            f"Domain {source.name!r} ({source.file.path}) has no class {name!r}: check data and classes.",
        )
    chosen = subset.pick(target.counts.keys() & set(classes))
    unknown = sorted(target.counts.keys() - set(classes)) if chosen is None else []
    if unknown:
        raise UserError(
            f"Class {unknown[0]!r} of {target.name!r} is not one of {source.name!r}'s classes: "
            "name the target's classes in the protocol."
        )
    source_rows = np.flatnonzero(np.isin(source.classes, classes))
    target_rows = np.flatnonzero(np.isin(target.classes, classes if chosen is None else chosen))
    source_labels, labels = (
        pd.Categorical(names, categories=classes).codes.astype(np.int64)
        for names in (source.classes[source_rows], target.classes[target_rows])
    )
    pair = Pair(source.file, target.file, source_rows, source_labels, target_rows, len(classes))
    digest = digest_of(
        source.file.digest, target.file.digest, *classes, source_labels, source_rows, target_rows
    )
    return Dataset(task.name, subset.name, pair, labels, classes, digest)


def digest_of(*parts: str | bytes | np.ndarray) -> str:
    """A digest of texts and arrays, each kept apart from the next."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = (
            part.encode() if isinstance(part, str) else part if isinstance(part, bytes) else part.tobytes()
        )
        hasher.update(len(content).to_bytes(8, "little") + content)
    return hasher.hexdigest()


def _open(protocol: Protocol, name: str, folder: Path, images: bool) -> Domain:
    places = protocol.domains[name]
    candidates = (
        write_digits(place.removeprefix(PACKAGE), cache_folder() / "digits")
        if place.startswith(PACKAGE)
        else folder / place
        for place in places
    )
    paths = [path for path in candidates if path.exists()]
    require(
        bool(paths),
        f"Domain {name!r} of {protocol.name} is not in {folder} (looked for {', '.join(places)}): "
        "give the folder with the data (`root`).",
    )
    path = next((path for path in paths if images and path.suffix != FEATURES), paths[0])
    if path.suffix == FEATURES:
        features = read_features(path)
        labels, class_names, backbone = features.labels, features.class_names, features.backbone
        file = File(path, digest_of(path.read_bytes()))
    else:
        root = None if path.is_dir() else folder
        listed, digest = image_list(path, root)
        labels, class_names, backbone = listed.labels, listed.class_names, None
        file = File(path, digest, root)
    if labels is None or class_names is None or labels.dtype.kind not in "iu":
        raise UserError(f"{path} has no whole-number labels or no class_names: a benchmark needs both.")
    names = [protocol.rename.get(name, {}).get(each, each) for each in class_names]
    check_distinct(names, path)
    return Domain(name, file, np.array(names)[labels], tuple(names), backbone)


def image_list(path: Path, root: Path | None) -> tuple[ImageList, str]:
    """The labelled images of a folder or list file, and a digest of their names and contents."""
    images = read_images(path, root=root, labelled=True)
    paths = (images.file(row) for row in range(len(images)))
    contents = b"".join(map_in_order(_file_digest, paths, cpu_count()))
    return images, digest_of("\n".join(images.paths).encode(errors="surrogateescape"), contents)


def _file_digest(path: Path) -> bytes:
    """A digest of a small file, or of a large one's beginning, end, size and time of change."""
    hasher = hashlib.blake2b(digest_size=16)
    if path.is_file():  # else opening the image later says what is wrong; reading a pipe would never end
        with suppress(OSError), path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            hasher.update(file.read(2 * _SAMPLED))
            if status.st_size > 2 * _SAMPLED:
                file.seek(-_SAMPLED, os.SEEK_END)
                hasher.update(file.read(_SAMPLED) + f"{status.st_size} {status.st_mtime_ns}".encode())
    return hasher.digest()


def _differences(protocol: Protocol, domains: dict[str, Domain]) -> list[str]:
    """What differs from the expected counts, a sentence each."""
    differences = []
    for name, expected in protocol.expected.items():
        if name not in domains:
            continue
        counts = domains[name].counts
        if isinstance(expected, int):
            compared = [("", counts.total(), expected)]
        else:
            classes = sorted(expected.keys() | counts.keys())
            compared = [(f"class {each!r} has ", counts[each], expected.get(each, 0)) for each in classes]
        for what, count, wanted in compared:
            if count != wanted:
                gap = f"{wanted - count} missing" if count < wanted else f"{count - wanted} surplus"
                where = f"Domain {name} ({domains[name].file.path})"
                differences.append(f"{where}: {what}{count} samples, {wanted} expected ({gap}).")
    return differences
