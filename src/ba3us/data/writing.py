"""Files and folders that appear whole or not at all, also when a process is killed or the disk is full."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ba3us.errors import UserError, require

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # some network file systems have none
_OLD = "old"  # the name of a replaced folder in the staging folder


class UnwrittenError(UserError):
    """A file or folder that can't be written; what was there before is as it was."""


def check_new_file(path: Path) -> None:
    """Fail before the work rather than after it if `path` can't be written."""
    kind = "folder" if path.is_dir() else "device, not a file"
    require(path.is_file() or not path.exists(), f"The output {path} is a {kind}: give a file name.")
    _check_parent(path)


def check_new_folder(path: Path, overwrite: bool, foreign: Callable[[Path], Path | None]) -> None:
    """As :func:`check_new_file`; an existing folder is replaced only with `overwrite`.

    `foreign` gives the first entry of a folder that must not be replaced; with one, the folder is refused.
    """
    if path.is_dir() and any(path.iterdir()):
        other = foreign(path)
        if other is not None:
            raise UserError(
                f"The folder {path} holds other files, such as {other.relative_to(path)}: choose another one "
                "with `out`."
            )
        require(overwrite, f"There is a run in {path} already: choose another `out`, or add `overwrite`.")
    else:
        require(path.is_dir() or not path.exists(), f"The output {path} is a file: choose another `out`.")
    here = Path.cwd()
    require(
        path.resolve() not in (here, *here.parents),
        f"The output {path} is the folder you are in, or holds it: give a new folder with `out`.",
    )
    _check_parent(path)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; the file replaces `path` when the block ends well.

    If `path` is a link, its target is replaced.
    """
    path = Path(os.path.realpath(path))
    with _staging(path) as part:
        yield part
        os.replace(part, path)


@contextmanager
def new_files(path: Path) -> Iterator[Path]:
    """As :func:`new_file`; other files beside the temporary name are moved along, before the file itself."""
    with _staging(path) as part:
        yield part
        for file in sorted(part.parent.iterdir(), key=lambda file: file.name == part.name):
            os.replace(file, path.with_name(file.name))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it replaces `path` when the block ends well.

    If `path` is a link, its target is replaced.
    """
    path = Path(os.path.realpath(path))
    with _staging(path) as part:
        part.mkdir()
        yield part
        old = part.with_name(_OLD)
        if path.is_dir():
            os.rename(path, old)  # from here on, _tidy can restore it
        try:
            os.rename(part, path)
        except BaseException:
            if old.is_dir():
                os.rename(old, path)
            raise


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Refuse to work on `path` while another process does; remove what killed processes left.

    Where the file system has no locks, nobody is refused.
    """
    _check_parent(path)
    path = Path(os.path.realpath(path))
    created = [folder for folder in path.parents if not folder.exists()]
    with _failure_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(path.with_name(f".{path.name}.lock"))
    if lock is None:
        raise UserError(
            f"Another process is writing to {path}: wait until it has ended, or choose another `out`."
        )
    try:
        _tidy(path)
        yield
    finally:
        _unlock(lock)
        with suppress(OSError):  # nothing was written
            for folder in created:
                folder.rmdir()


@contextmanager
def _staging(path: Path) -> Iterator[Path]:
    """Give the name of `path` in a folder beside it, which is removed in the end.

    A lock file says that its process lives, so that others do not remove the folder.
    """
    path = path.absolute()
    folder = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    with _failure_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _tidy(path)
        lock = _lock(folder.with_suffix(".lock"), timeout=-1)
        try:
            folder.mkdir()
            yield folder / path.name
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _unlock(lock)


def _tidy(path: Path) -> None:
    """Remove what killed processes left beside `path`; restore the folder that one was replacing."""
    for file in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 12}.lock"):
        lock, left = _lock(file), file.with_suffix(".part")
        if lock is not None:
            if (left / _OLD).is_dir() and not os.path.lexists(path):
                os.rename(left / _OLD, path)
            shutil.rmtree(left, ignore_errors=True)
            _unlock(lock)


def _lock(path: Path, timeout: float = 0) -> FileLock | None:
    """Create and lock a file; None if another process holds it."""
    lock = FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return lock


def _unlock(lock: FileLock | None) -> None:
    if lock is not None:
        with suppress(OSError):
            os.unlink(lock.lock_file)  # while it is held, so that nobody else's is removed
        lock.release()


def _check_parent(path: Path) -> None:
    """The folder is there and can be written to, or can be made."""
    require(bool(path.absolute().name), f"The output {path} has no name: give a new one with `out`.")
    above = next(folder for folder in Path(os.path.realpath(path)).parents if os.path.lexists(folder))
    require(above.is_dir(), f"The output {path} lies in {above}, which is a file: choose another place.")
    require(
        os.access(above, os.W_OK | os.X_OK), f"The folder {above} can't be written to: choose another place."
    )


@contextmanager
def _failure_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        left = "what was there stays as it was" if os.path.lexists(path) else "nothing was written"
        raise UnwrittenError(
            f"{path} can't be written ({error.strerror or error}), {left}: make room, or choose another place."
        ) from error
