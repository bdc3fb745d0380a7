"""Randomness of a run's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
def seeded(seed: int, threads: int | None = None) -> Iterator[None]:
    """Seeded randomness and a fixed number of threads, without touching the caller's.

    Runs of several Python threads take turns, so that each has the bits that it has alone. A forked process has
    one thread, whatever is asked for.
    """
    with _LOCK, torch.random.fork_rng():
        before = torch.get_num_threads()
        torch.manual_seed(seed)
        if threads is not None and not _FORKED:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
