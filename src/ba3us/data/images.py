"""Lists of images: a folder of class folders, a flat or nested folder, or the field's list files."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ba3us.errors import UserError, require

SUFFIXES = {
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
    ".jp2", ".avif", ".ico", ".tga",
}  # fmt: skip
# Pillow's decoders for these suffixes. Others stay out of reach: EPS, for one, is a program for Ghostscript.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA")
# of a JPEG, PNG, GIF, BMP or TIFF file
_FIRST_BYTES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_MAX_LINKS = 100  # to one folder: links to links could otherwise multiply without end
_MAX_CLASSES = 1_000_000  # a larger label is a mistake, and a name per class would fill the memory


@dataclass(frozen=True)
class Skipped:
    """A file or folder that was skipped, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class ImageList:
    """Images on disk, not yet opened.

    Attributes
    ----------
    root : Path
        The folder that relative paths start from.
    paths : list of str
        One per image, relative to `root` (or absolute and below it, if a list file says so).
    labels : int64 array or None
        0 … C-1, or None for unlabelled images.
    class_names : list of str or None
        By label; None for unlabelled images.
    skipped : list of Skipped
        Files and folders that are not in the list.
    """

    root: Path
    paths: list[str]
    labels: np.ndarray | None = None
    class_names: list[str] | None = None
    skipped: list[Skipped] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.paths)

    def file(self, row: int) -> Path:
        """The path of image `row`."""
        return self.root / self.paths[row]

    def subset(self, rows: Sequence[int] | np.ndarray) -> ImageList:
        """The images at `rows`."""
        labels = None if self.labels is None else self.labels[rows]
        return dataclasses.replace(self, paths=[self.paths[row] for row in rows], labels=labels)


def read_images(
    path: str | Path,
    *,
    root: str | Path | None = None,
    labelled: bool | None = None,
    class_names: Sequence[str] | None = None,
) -> ImageList:
    """The images of a folder or of a list file.

    A folder whose images lie in subfolders is labelled: one class per direct subfolder, in alphabetical
    order, at any depth. Names that differ only in case are two classes. A folder of images without subfolders
    is unlabelled. A list file holds ``path label`` or just ``path`` on each line. No path may leave `root`,
    neither an absolute one nor one with ``..``. Links of the file system are followed wherever they lead.

    Parameters
    ----------
    path : path
        A folder, or a list file.
    root : path, optional
        The folder that the paths of a list file start from; by default the folder of the list file.
    labelled : bool, optional
        False: take all images at any depth, without labels. True: require labels. By default, labels are read
        where there are some.
    class_names : sequence of str, optional
        Names by label for a list file; by default the folder names, if each label has its own.
    """
    path = Path(path)
    require(path.exists(), f"There is no folder or list file {path}: check the path.")
    if path.is_dir():
        require(root is None, f"`root` is for list files, but {path} is a folder: leave it out.")
        require(class_names is None, f"`classes` is for list files, but {path} is a folder: leave it out.")
        images = _read_folder(path, labelled)
    else:
        images = _read_list(path, path.parent if root is None else Path(root), labelled, class_names)
    if not images.paths:
        skipped = f"; the first of {len(images.skipped)} skipped: {images.skipped[0]}" if images.skipped else ""
        raise UserError(f"No image is in {path}{skipped}: give a folder or a list file of images.")
    return images


def read_class_names(path: str | Path) -> list[str]:
    """Class names, one per line, in the order of the labels."""
    names = lines_of(Path(path))
    require(bool(names), f"The file {path} holds no class names: write one per line.")
    check_distinct(names, path)
    return names


def check_distinct(class_names: Sequence[str], path: str | Path) -> None:
    """Refuse two classes of one name."""
    repeated = [name for name, count in Counter(class_names).items() if count > 1]
    require(not repeated, f"{path} has two classes called {''.join(repeated[:1])!r}: give each its own name.")


def _read_folder(folder: Path, labelled: bool | None) -> ImageList:
    skipped: list[Skipped] = []
    files = sorted(_walk(folder, skipped))
    nested = [name for name in files if "/" in name]
    if labelled is False or not (labelled or nested):
        return ImageList(folder, files, skipped=skipped)
    require(
        bool(nested),
        f"The images of {folder} lie in no class folders: make one subfolder per class for labels.",
    )
    skipped += [Skipped(name, "lies outside the class folders") for name in files if "/" not in name]
    classes = [name.split("/")[0] for name in nested]
    class_names = sorted(set(classes))
    number = {name: label for label, name in enumerate(class_names)}
    labels = np.array([number[name] for name in classes], dtype=np.int64)
    folders = {entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")}
    skipped += [Skipped(name, "a class folder without images") for name in sorted(folders - set(class_names))]
    return ImageList(folder, nested, labels, class_names, skipped)


def _walk(root: Path, skipped: list[Skipped]) -> Iterator[str]:
    """Paths of image files below `root`, following links but not in circles."""

    def unreadable(error: OSError) -> None:
        where = os.path.relpath(error.filename, root) if error.filename else str(root)
        skipped.append(Skipped(where, f"the folder can't be read ({error.strerror})"))

    above: dict[str, frozenset[str]] = {}  # folder → real paths of it and of all folders above it
    links: Counter[str] = Counter()
    for folder, folders, names in os.walk(root, followlinks=True, onerror=unreadable):
        real = os.path.realpath(folder)
        parents = above.get(os.path.dirname(folder), frozenset())
        if real in parents or links[real] == _MAX_LINKS:
            folders.clear()
            many = f"more than {_MAX_LINKS} links lead to it"
            reason = "a link back to a folder above it" if real in parents else many
            skipped.append(Skipped(os.path.relpath(folder, root), reason))
            continue
        links[real] += 1
        above[folder] = parents | {real}
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            file = os.path.join(folder, name)
            path = os.path.relpath(file, root).replace(os.sep, "/")
            suffix = os.path.splitext(name)[1].lower()
            if name.startswith(".") or name in ("Thumbs.db", "desktop.ini"):
                continue
            if suffix in SUFFIXES or (not suffix and _begins_like_an_image(file)):
                yield path
            else:
                skipped.append(
                    Skipped(path, f"not an image file ({suffix or 'no suffix, nor the bytes of one'})")
                )


def _begins_like_an_image(file: str) -> bool:
    """Whether a file without a suffix has the first bytes of a JPEG, PNG, GIF, BMP, TIFF or WebP file."""
    if not os.path.isfile(file):
        return False  # reading a pipe would never end
    try:
        with open(file, "rb") as opened:
            start = opened.read(12)
    except OSError:
        return True  # decoding it says why it can't be read
    return start.startswith(_FIRST_BYTES) or (start[:4], start[8:]) == (b"RIFF", b"WEBP")


def _read_list(path: Path, root: Path, labelled: bool | None, class_names: Sequence[str] | None) -> ImageList:
    require(
        root.is_dir(), f"The root {root} is not a folder: give the one that the paths of {path} start from."
    )
    rows = [_split(line) for line in lines_of(path)]
    names = [name for name, _ in rows]
    if labelled is False or (labelled is None and all(label is None for _, label in rows)) or not rows:
        return ImageList(root, _checked(names, root, path))
    for number, (name, label) in enumerate(rows, start=1):
        require(
            label is not None,
            f"{path} has no label in row {number} ({name!r}): write 'path label' on each line.",
        )
        require(
            label is not None and label < _MAX_CLASSES,
            f"{path} has the label {label} in row {number}: number the classes 0, 1, 2, …",
        )
    names = _checked(names, root, path)
    labels = np.array([label for _, label in rows], dtype=np.int64)
    if class_names is None:
        return ImageList(root, names, labels, folder_names(names, labels))
    require(
        len(class_names) > labels.max(),
        f"{path} has labels up to {labels.max()} but {len(class_names)} class names: give one name per label.",
    )
    return ImageList(root, names, labels, list(class_names))


def lines_of(path: Path) -> list[str]:
    """The non-empty lines of a text file."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}): check the file.") from error
    require("\0" not in text, f"{path} is not a text file: give a list file with 'path label' on each line.")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _split(line: str) -> tuple[str, int | None]:
    """``path label`` → (path, label); the path may contain blanks, the label may be missing (None)."""
    name, _, last = line.rpartition(" ") if " " in line else line.rpartition("\t")
    return (name.strip(), int(last)) if name and last.isdecimal() else (line, None)


def _checked(names: list[str], root: Path, path: Path) -> list[str]:
    """The names, if all lie below the root and at least one file exists; a wrong root would skip them all."""
    prefix = os.path.join(os.path.abspath(root), "")
    for name in names:
        require(
            os.path.abspath(root / name).startswith(prefix),
            f"{path} names {name!r}, which lies outside {root}: give a folder that holds all of them (`root`).",
        )
    # os.path.exists is False for a name that is too long, unlike pathlib's
    if names and not any(os.path.exists(root / name) for name in names):
        word = names[0].strip("\"'")
        trimmed = [word, *(word.rpartition(mark)[0].strip("\"' ") for mark in ", \t")]
        if any(each and os.path.isfile(root / each) for each in trimmed):
            raise UserError(
                f"{path} has the line {names[0]!r}: write the path as it is, then a blank and the number of "
                "its class, or the path alone."
            )
        raise UserError(
            f"None of the {len(names)} images of {path} is under {root} (the first is {names[0]!r}): "
            f"give the folder that the paths start from (`root`)."
        )
    return names


def folder_names(names: Sequence[str], labels: np.ndarray) -> list[str]:
    """Names by label: the folder, if every label has one folder name of its own; else the label as text."""
    folders = defaultdict(set)
    for name, label in zip(names, labels.tolist()):
        folders[label].add(Path(name).parent.name)
    single = [next(iter(names)) for names in folders.values() if len(names) == 1]
    one_to_one = len(set(single)) == len(folders) and all(single)
    return [
        next(iter(folders[label])) if one_to_one and label in folders else str(label)
        for label in range(int(labels.max()) + 1)
    ]
