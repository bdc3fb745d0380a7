"""Freed memory is kept while asked for, and given back after."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest
import torch

from ba3us.nn import memory
from ba3us.nn.memory import kept_memory

# in a process of its own: what other tests have left free would be taken again
ALONE = """
import json, resource, torch
from pathlib import Path
from ba3us.nn.memory import kept_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

new_pages()
usual = new_pages()
with kept_memory(), kept_memory():
    kept = new_pages()
before = resident()
with kept_memory():
    for _ in range(3):
        [torch.ones(5_000_000) for _ in range(10)]
    inside = resident() - before
print(json.dumps({"usual": usual, "kept": kept, "inside": inside, "after": resident() - before}))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_taken_again_and_goes_back_at_the_end():
    run = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    seen = json.loads(run.stdout)
    assert seen["kept"] < seen["usual"] / 3  # pages the kernel had to make for ten large tensors
    assert seen["inside"] > 10**8 and seen["after"] < 5 * 10**7


def test_changes_nothing_elsewhere(monkeypatch):
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with kept_memory():
        assert float(torch.ones(3).sum()) == 3
