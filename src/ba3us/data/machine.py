"""What this machine has: memory, processors, and room for caches."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from ba3us.errors import require

DEFAULT_CACHE_GB = 10.0


def total_memory() -> int | None:
    """Bytes of memory of this machine, or of its container; None if unknown."""
    sizes = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # also where it says "max"
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes, default=None)


def cpu_count() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(workers: int | None) -> int:
    """Number of threads: `workers`, by default one per processor and at most 16."""
    require(workers is None or workers > 0, f"workers is {workers}: give at least 1.")
    return workers or min(cpu_count(), 16)


def cache_bytes(cache_gb: float) -> int:
    """Bytes that a cache may hold, from 10⁹ bytes."""
    require(0 <= cache_gb < math.inf, f"cache_gb is {cache_gb}: give 0 or more.")
    return int(cache_gb * 10**9)
