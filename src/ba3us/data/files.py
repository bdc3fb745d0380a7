"""Feature files: what ``ba3us embed`` writes and every command on arrays reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ba3us.data.writing import check_new_file, new_file
from ba3us.errors import UserError, require


@dataclass(frozen=True)
class FeatureSet:
    """Features of samples, with whatever else is known about them.

    Attributes
    ----------
    features : array [n, d]
        Memory-mapped when it comes from a ``.npy`` file.
    labels : array [n] or None
        As stored: integers, or anything the estimator takes.
    class_names : list of str or None
        Names by integer label.
    paths : list of str or None
        Where each sample came from.
    backbone : str or None
        What made the features.
    """

    features: np.ndarray
    labels: np.ndarray | None = None
    class_names: list[str] | None = None
    paths: list[str] | None = None
    backbone: str | None = None


def read_features(path: str | Path) -> FeatureSet:
    """Read a ``.npz`` file with an array ``features`` (and perhaps ``labels``, …) or a bare ``.npy`` array.

    Nothing in the file can run code. Values are not looked at here, except that sizes must agree.
    """
    path = Path(path)
    require(path.is_file(), f"There is no file {path}: check the path, or make one with ba3us embed.")
    require(path.suffix in (".npz", ".npy"), f"{path} is neither .npz nor .npy: give a file that NumPy wrote.")
    with _damage_named(path):
        found = _read_npz(path) if path.suffix == ".npz" else FeatureSet(_read_npy(path))
    _check(found, path)
    return found


def read_labels(path: str | Path) -> np.ndarray:
    """Read a ``.npy`` file with one label per row."""
    path = Path(path)
    require(path.is_file(), f"There is no file {path}: give a .npy file with one label per row.")
    require(path.suffix == ".npy", f"The labels {path} are not .npy: give a file that numpy.save wrote.")
    with _damage_named(path):
        labels = np.load(path, allow_pickle=False)
    require(labels.ndim == 1, f"The labels {path} have shape {labels.shape}: give one label per row.")
    return labels


def write_features(path: str | Path, content: FeatureSet) -> None:
    """Write a ``.npz`` file at once or not at all."""
    path = Path(path)
    _check(content, path)
    arrays = {"features": content.features}
    if content.labels is not None:
        arrays["labels"] = content.labels
    if content.class_names is not None:
        arrays["class_names"] = np.array(content.class_names, dtype=np.str_)
    if content.paths is not None:
        arrays["paths"] = np.array(content.paths, dtype=np.str_)
    if content.backbone is not None:
        arrays["backbone"] = np.array(content.backbone)
    with new_file(path) as part, open(part, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]


def check_writable(path: str | Path) -> None:
    """Fail before the work rather than after it if `path` can't become a ``.npz`` file."""
    path = Path(path)
    require(path.suffix == ".npz", f"The output {path} must end in .npz.")
    check_new_file(path)


def _read_npz(path: Path) -> FeatureSet:
    with np.load(path, allow_pickle=False) as file:
        require(
            "features" in file.files,
            f"{path} has no array 'features' (it has: {', '.join(file.files) or 'none'}): "
            f"save one under that name.",
        )

        def optional(key: str) -> np.ndarray | None:
            return file[key] if key in file.files else None

        names, paths, backbone = (optional(key) for key in ("class_names", "paths", "backbone"))
        return FeatureSet(
            file["features"],
            labels=optional("labels"),
            class_names=None if names is None else [str(name) for name in np.atleast_1d(names)],
            paths=None if paths is None else [str(name) for name in np.atleast_1d(paths)],
            backbone=None if backbone is None else str(backbone),
        )


def _read_npy(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r", allow_pickle=False)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # zip, zlib and header parsers each raise their own kinds
        detail = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UserError(
            f"{path} can't be read ({detail}): it is damaged, cut short, or holds Python objects; "
            f"make it again."
        ) from error


def _check(content: FeatureSet, path: Path) -> None:
    features = content.features
    require(
        isinstance(features, np.ndarray) and features.ndim >= 2,
        f"The features of {path} have shape {np.shape(features)}: give an array of samples [n, features].",
    )
    for name, values in (("labels", content.labels), ("paths", content.paths)):
        if values is not None and np.shape(values) != (len(features),):
            raise UserError(
                f"{path} has {len(features)} rows of features but {name} of shape {np.shape(values)}: "
                f"give one per row."
            )
    _check_class_names(content, path)


def _check_class_names(content: FeatureSet, path: Path) -> None:
    names, labels = content.class_names, content.labels
    if names is None or labels is None or labels.dtype.kind not in "iu" or not len(labels):
        return
    require(
        int(labels.min()) >= 0 and int(labels.max()) < len(names),
        f"{path} has labels {labels.min()} … {labels.max()} but {len(names)} class names: "
        f"give one name per label.",
    )
