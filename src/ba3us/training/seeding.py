"""Randomness of a run's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.RLock()  # torch has one generator and one number of threads for all


@contextmanager
def seeded(seed: int, threads: int | None = None) -> Iterator[None]:
    """Seeded randomness and a fixed number of threads, without touching the caller's.

    Runs of several Python threads take turns, so that each has the bits that it has alone.
    """
    with _LOCK, torch.random.fork_rng():
        before = torch.get_num_threads()
        torch.manual_seed(seed)
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
