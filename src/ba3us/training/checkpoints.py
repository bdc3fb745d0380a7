"""What bit-exact resuming needs: the state on disk, shutdown between two steps, seeded randomness."""

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

_FORMAT = "ba3us run 5"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts) whole or not at all."""
    with new_file(path) as part:
        try:
            with part.open("wb") as file:
                torch.save({"format": _FORMAT, "written_by": _program(), **state}, file)
        except RuntimeError as error:  # torch hides the OSError of a write that failed
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def load(path: Path) -> dict[str, Any]:
    """Read what :func:`save` wrote; loading can't run code."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint at {path}: check the path, or start without resuming.")
    try:
        with zipfile.ZipFile(path) as file:  # torch checks no checksum, and reads records marked as folders
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
        f"The checkpoint {path} was written by {writer}, but this is {_program()}, which may not continue "
        "the same way: use the version that wrote it, or start without resuming.",
    )
    return state


def _program() -> str:
    return f"ba3us {__version__} with torch {torch.__version__}"


def random_state() -> dict[str, torch.Tensor]:
    """The state of torch's random numbers, on the CPU and on the GPU of this process, if it uses one."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_state(states: dict[str, torch.Tensor]) -> None:
    """Restore what :func:`random_state` gave."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


# --- shutdown ---------------------------------------------------------------------------------------------


class GracefulShutdown:
    """Delays Ctrl-C (and SIGTERM, if the program handles it) until the step is done and the state is saved.

    Inside the block the first signal only sets `requested`. :meth:`now` then does what the signal would have
    done; a second signal does it at once. Only the main thread gets signals: elsewhere nothing changes.
    """

    def __init__(self, wait: bool = True) -> None:
        self.requested = False
        self._wait = wait and threading.current_thread() is threading.main_thread()
        self._handlers: dict[int, Any] = {}
        self._signal: tuple[int, FrameType | None] = (signal.SIGINT, None)

    def __enter__(self) -> GracefulShutdown:
        for number in (signal.SIGINT, signal.SIGTERM) if self._wait else ():
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._restore_handlers()
        if self.requested and kind is None:  # the block ended before anybody asked
            self.now()

    def now(self) -> None:
        """Handle the signal as the program would have: mostly, raise KeyboardInterrupt."""
        self._restore_handlers()
        self.requested, handler = False, self._handlers.get(self._signal[0])
        if handler is not None:
            handler(*self._signal)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        second, self.requested, self._signal = self.requested, True, (number, frame)
        if second:
            self.now()

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


# --- seeding ----------------------------------------------------------------------------------------------

_LOCK = threading.RLock()  # torch has one generator and one number of threads per process
_FORKED = False  # whether this process was forked from one that had imported torch


def _in_fork() -> None:
    """Make a new lock, because its holder may not exist here; torch's other threads do not exist either."""
    global _LOCK, _FORKED
    _LOCK, _FORKED = threading.RLock(), True
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


@contextmanager
def seeded(seed: int, n_threads: int | None = None) -> Iterator[None]:
    """Seed torch and fix its number of threads inside the block; restore the caller's settings afterwards.

    Runs in several Python threads take turns, so that each gives the same bits as alone. A forked process has
    one thread, whatever `n_threads` is.
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
