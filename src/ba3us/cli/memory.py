"""Memory that a network's activations take again and again."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of glibc's mallopt(3)


def keep_memory() -> None:
    """Let this process keep freed memory for the next step instead of giving it back to the system.

    By default every large tensor is new memory that the kernel has to clear: on a CPU a third of the time of a
    step on images. For programs, once, at their start; nothing in the package that can be imported and called
    does it, because the allocator is its caller's. Only for glibc (Linux); elsewhere nothing is changed.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, -1)
