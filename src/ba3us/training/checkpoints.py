"""Randomness of a run's own."""

from __future__ import annotations

import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ba3us import __version__
from ba3us.data.writing import new_file
from ba3us.errors import UserError, require

# --- checkpoint -------------------------------------------------------------------------------------------
# Saving and reading the state of a run, so that it can go on bit for bit.


_FORMAT = "ba3us run 5"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts) at once or not at all."""
    with new_file(path) as part:
        try:
            with part.open("wb") as file:
                torch.save({"format": _FORMAT, "written_by": _program(), **state}, file)
        except RuntimeError as error:  # of torch's own, when the system has refused to write
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def beside(path: Path, kind: str) -> Path:
    """Where another state of the same run lies."""
    return path.with_name(f"{path.name}.{kind}")


def load(path: Path) -> dict[str, Any]:
    """Read what :func:`save` wrote; loading can't run code."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint at {path}: check the path, or start without resuming.")
    try:
        with zipfile.ZipFile(path) as file:  # torch looks at no checksum, and reads what is marked as a folder
            if file.testzip() is not None or any(record.external_attr for record in file.infolist()):
                raise zipfile.BadZipFile
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise UserError(
            f"The checkpoint {path} can't be read ({type(error).__name__}): it is damaged, "
            "start without resuming."
        ) from error
    require(
        isinstance(state, dict) and state.get("format") == _FORMAT,
        f"The file {path} is not a checkpoint of a run, or of another version: start without resuming.",
    )
    writer = state.get("written_by")
    require(
        writer == _program(),
        f"The checkpoint {path} was written by {writer}, but this is {_program()}, which need not go on "
        "the same way: use what wrote it, or start without resuming.",
    )
    return state


def _program() -> str:
    return f"ba3us {__version__} with torch {torch.__version__}"


def random_state() -> dict[str, torch.Tensor]:
    """Where torch's random numbers stand, on the CPU and on the GPU that this process uses, if it does."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_state(states: dict[str, torch.Tensor]) -> None:
    """Go on from what :func:`random_state` gave."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


# --- leaving ----------------------------------------------------------------------------------------------
# GracefulShutdown between two updates: a signal waits for the current one, so that the state is saved whole.


_HEARD = (signal.SIGINT, signal.SIGTERM)


class GracefulShutdown:
    """While this lasts, the first Ctrl-C (or SIGTERM, if the program answers it) only sets `asked`.

    :meth:`now` then does what the signal would have done; a second one does it at once. Outside the main
    thread, which alone hears signals, nothing changes.
    """

    def __init__(self, wait: bool = True) -> None:
        self.asked = False
        self._wait = wait and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._heard: tuple[int, FrameType | None] = (signal.SIGINT, None)

    def __enter__(self) -> GracefulShutdown:
        answered = {number: signal.getsignal(number) for number in _HEARD if self._wait}
        self._before = {number: handler for number, handler in answered.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._give_back()
        if self.asked and kind is None:  # all was done before it could be heeded
            self.now()

    def now(self) -> None:
        """Leave: raises what the program raises at such a signal."""
        self._give_back()
        self.asked, handler = False, self._before.get(self._heard[0])
        if handler is not None:
            handler(*self._heard)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        twice, self.asked, self._heard = self.asked, True, (number, frame)
        if twice:
            self.now()

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# --- seeding ----------------------------------------------------------------------------------------------
# Randomness of a run's own.


_LOCK = threading.RLock()  # torch has one generator and one number of threads for all
_FORKED = False  # whether this process is a fork of one that had torch


def _in_fork() -> None:
    """Nobody is left to release a lock that another thread held, nor of torch's team of threads to wait for."""
    global _LOCK, _FORKED
    _LOCK, _FORKED = threading.RLock(), True
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


@contextmanager
def seeded(seed: int, n_threads: int | None = None) -> Iterator[None]:
    """Seeded randomness and a fixed number of threads, without touching the caller's.

    Runs of several Python threads take turns, so that each has the bits that it has alone. A forked process has
    one thread, whatever is asked for.
    """
    with _LOCK, torch.random.fork_rng():
        before = torch.get_num_threads()
        torch.manual_seed(seed)
        if n_threads is not None and not _FORKED:
            torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
