"""How much memory this machine has, so that what cannot fit is refused before it is tried."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def memory() -> int | None:
    """Bytes of memory that this process can have at most: the machine's, or its container's; None: unknown."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # also where it says "max"
        found.append(int(_LIMIT.read_text()))
    return min(found, default=None)
