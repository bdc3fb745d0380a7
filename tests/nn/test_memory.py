"""Freed memory is kept while asked for, and given back after."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from ba3us.nn import memory
from ba3us.nn.memory import kept_memory


def new_pages() -> int:
    """Pages that the kernel has to make for ten large tensors, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_large_tensors_take_the_same_memory_again():
    usual = new_pages()
    with kept_memory(), kept_memory():
        kept = new_pages()
    assert kept < usual / 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_what_is_free_goes_back_at_the_end():
    before = resident()
    with kept_memory():
        for _ in range(3):
            [torch.ones(5_000_000) for _ in range(10)]
        assert resident() > before + 10**8
    assert resident() < before + 5 * 10**7


def test_changes_nothing_elsewhere(monkeypatch):
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with kept_memory():
        assert float(torch.ones(3).sum()) == 3
