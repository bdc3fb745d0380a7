"""Files and folders that appear whole or not at all, also when a process is killed or the disk is full."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ba3us.errors import UserError, require

try:
    import fcntl
except ImportError:  # no such locks on this system: what killed processes left is then not taken away
    fcntl = None  # type: ignore[assignment]

_EXCHANGE = 2  # of Linux's renameat2
_HERE = -100  # paths as they are


class UnwrittenError(UserError):
    """A file or folder that can't be written; what was there before is as it was."""


def check_new_file(path: Path) -> None:
    """Fail before the work rather than after it if `path` can't be written."""
    require(not path.is_dir(), f"The output {path} is a folder: give a file name.")
    require(
        path.is_file() or not path.exists(), f"The output {path} is no file but a device: give a file name."
    )
    _check_parent(path)


def check_new_folder(path: Path, overwrite: bool, foreign: Callable[[Path], Path | None]) -> None:
    """As :func:`check_new_file`; an existing folder is replaced only with `overwrite`.

    `foreign` gives the first entry of a folder that must not be replaced; with one, the folder is refused.
    """
    if path.is_dir() and any(path.iterdir()):
        other = foreign(path)
        example = other and other.relative_to(path)
        require(
            other is None,
            f"The folder {path} holds other files, such as {example}: choose another one with `out`.",
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
    """A temporary name to write to; when the block ends well, the file takes its place, else it is removed.

    A link stays: what it leads to is written.
    """
    path = Path(os.path.realpath(path))
    with _staging_dir(path) as made:
        yield made
        os.replace(made, path)


@contextmanager
def new_files(path: Path) -> Iterator[Path]:
    """As :func:`new_file`; what else is written beside the temporary name comes along, before the file."""
    with _staging_dir(path) as made:
        yield made
        for file in sorted(made.parent.iterdir(), key=lambda file: file.name == made.name):
            os.replace(file, path.with_name(file.name))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; when the block ends well, it takes its place, else it is removed.

    A link stays: the folder that it leads to is written.
    """
    path = Path(os.path.realpath(path))
    with _staging_dir(path) as made:
        made.mkdir()
        yield made
        if path.is_dir():
            _swap(made, path)
        else:
            os.rename(made, path)


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Be the one process that works on `path` while this lasts; a sentence if another one does.

    What a killed process left beside it is taken away first. Where the file system has no locks, nobody is
    kept out.
    """
    _check_parent(path)
    path = Path(os.path.realpath(path))
    lock = path.with_name(f".{path.name}.lock")
    with _failure_named(path):
        made = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _locked(lock)
    if file is None:
        raise UserError(
            f"Another process is writing to {path}: wait until it has ended, or choose another `out`."
        )
    try:
        _tidy(path)
        yield
    finally:
        with suppress(OSError):
            lock.unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
        os.close(file)
        with suppress(OSError):  # nothing was written
            for folder in made:
                folder.rmdir()


# --- how ----------------------------------------------------------------------------------------------------


@contextmanager
def _staging_dir(path: Path) -> Iterator[Path]:
    """A name in a folder of its own beside `path`, which is locked while it is in use, and then removed."""
    path = path.absolute()
    shop, file = _shop(path), None
    try:
        with _failure_named(path):
            _tidy(path)
            while file is None:  # somebody may take it for one that was left, until it is locked
                shop = _shop(path)
                shop.mkdir(parents=True)
                file = _hold(shop)
            yield shop / path.name
    finally:
        shutil.rmtree(shop, ignore_errors=True)
        if file is not None:
            os.close(file)


def _shop(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")


def _tidy(path: Path) -> None:
    """Remove what killed processes left beside `path`; a folder that one had put aside comes back."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part") if fcntl else ():
        file = _hold(left) if left.is_dir() else None
        if file is not None:
            if (left / "old").is_dir() and not os.path.lexists(path):
                os.rename(left / "old", path)
            shutil.rmtree(left, ignore_errors=True)
            os.close(file)


def _hold(folder: Path) -> int | None:
    """A locked descriptor of a folder; None if another process has it, or it is gone."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    if _lock(file) and folder.exists():
        return file
    os.close(file)
    return None


def _locked(path: Path) -> int | None:
    """A locked descriptor of a file that is made for it; None if another process has it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(file):
            os.close(file)
            return None
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        os.close(file)  # its holder has removed it meanwhile


def _lock(file: int) -> bool:
    """Whether nobody else has the lock; some file systems have none."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _swap(new: Path, path: Path) -> None:
    """Let a new folder take the place of an old one: at once where the system can, else by way of a name."""
    if _exchanged(new, path):
        return
    old = new.with_name("old")
    os.rename(path, old)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(old, path)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two folders have changed places in one go, which Linux can on most file systems."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def _check_parent(path: Path) -> None:
    """The folder is there and can be written to, or can be made."""
    require(bool(path.absolute().name), f"The output {path} is no name: give a new one with `out`.")
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
        kept = "what was there stays as it was" if os.path.lexists(path) else "nothing was written"
        raise UnwrittenError(
            f"{path} can't be written ({error.strerror or error}), {kept}: make room, or choose another place."
        ) from error
