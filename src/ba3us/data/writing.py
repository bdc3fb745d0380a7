"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ba3us.errors import UserError, require


def check_new_file(path: Path) -> None:
    """Fail before the work rather than after it if `path` can't be written."""
    require(not path.is_dir(), f"The output {path} is a folder: give a file name.")
    _check_parent(path)


def check_new_folder(path: Path, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    """As :func:`check_new_file`; an existing folder may be replaced only if told to, and if it `is_ours`."""
    if path.is_dir() and any(path.iterdir()):
        require(is_ours(path), f"The folder {path} holds other files: choose another one with --out.")
        require(overwrite, f"There is a run in {path} already: choose another --out, or add --overwrite.")
    else:
        require(
            path.is_dir() or not os.path.lexists(path), f"The output {path} is a file: choose another --out."
        )
    _check_parent(path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name to write to; when the block ends well, the file takes its place, else it is removed."""
    path = path.absolute()
    part = _beside(path, "part")
    try:
        with _failure_named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def new_files(path: Path) -> Iterator[Path]:
    """As :func:`new_file`, in a temporary folder: what else is written into it comes along, before the file."""
    path = path.absolute()
    part = _beside(path, "part")
    try:
        with _failure_named(path):
            part.mkdir(parents=True)
            yield part / path.name
            for file in sorted(part.iterdir(), key=lambda file: file.name == path.name):
                os.replace(file, path.with_name(file.name))
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; when the block ends well, it takes its place, else it is removed."""
    path = path.absolute()
    part, old = _beside(path, "part"), _beside(path, "old")
    try:
        with _failure_named(path):
            part.mkdir(parents=True)
            yield part
            _replace(path, part, old)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace(path: Path, part: Path, old: Path) -> None:
    if path.exists():
        os.rename(path, old)
    try:
        os.rename(part, path)
    except BaseException:
        if old.exists():
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{kind}")


def _check_parent(path: Path) -> None:
    """The folder is there and can be written to, or can be made."""
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    require(above.is_dir(), f"The output {path} lies in {above}, which is a file: choose another place.")
    require(
        os.access(above, os.W_OK | os.X_OK), f"The folder {above} can't be written to: choose another place."
    )


@contextmanager
def _failure_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} can't be written ({error.strerror or error}): choose another place."
        ) from error
