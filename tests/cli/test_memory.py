"""A program may keep freed memory; the library never does by itself."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import ba3us
from ba3us.cli.app import keep_memory

# in a process of its own: the choice is for good
ALONE = """
import resource, torch
from ba3us.cli.app import keep_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
usual = new_pages()
keep_memory()
new_pages()
print(usual, new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_taken_again():
    run = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    usual, kept = map(int, run.stdout.split())
    assert kept < usual / 3  # pages the kernel had to make for ten large tensors


def test_no_call_of_the_library_changes_the_allocator():
    package = Path(ba3us.__file__).parent
    users = {p.relative_to(package) for p in package.rglob("*.py") if "keep_memory()" in p.read_text()}
    assert {path.parts[0].removesuffix(".py") for path in users} == {"cli"}


def test_elsewhere_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", None)  # not even looked for
    keep_memory()
