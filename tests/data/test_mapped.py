"""Memory-mapped rows: copies that come from disk, and pages that are let go of."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ba3us.data import Target
from ba3us.data.domains import Mapped, release_pages

ROWS, WIDTH = 5000, 512


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "x.npy"
    np.save(where, np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH))
    return where


def resident(path) -> int:
    """Bytes of a file's mapping that are in this process's memory."""
    total, inside = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            if "-" in line.split(" ")[0]:
                inside = str(path) in line
            elif inside and line.startswith("Rss:"):
                total += 1024 * int(line.split()[1])
    return total


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")


@linux
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_pages_that_were_read_are_let_go_of(path, mode):
    array = np.load(path, mmap_mode=mode)
    array.sum()
    assert resident(path) >= array.nbytes
    release_pages(array[10:20])  # a view has the same mapping
    assert resident(path) < array.nbytes / 10
    assert np.array_equal(array[7], 7 * WIDTH + np.arange(WIDTH))


@linux
def test_few_rows_stay_resident(path, monkeypatch):
    monkeypatch.setattr("ba3us.data.domains._MAX_RESIDENT", 1 << 20)
    array = np.load(path, mmap_mode="r")
    target = Target(array)
    assert resident(path) < 1 << 20  # all of it was looked at
    order = np.random.default_rng(0).permutation(ROWS)
    for start in range(0, ROWS, 10):
        target.batch(order[start : start + 10])
    assert resident(path) < 4 << 20 < array.nbytes


def test_a_copy_on_write_mapping_keeps_what_was_written(path):
    array = np.load(path, mmap_mode="c")
    array[5, 0] = -1
    release_pages(array)
    assert array[5, 0] == -1
    assert Mapped(array).read(np.array([5]))[0, 0] == -1


def test_written_rows_of_a_shared_mapping_are_kept(path):
    array = np.load(path, mmap_mode="r+")
    array[5, 0] = -1
    release_pages(array)
    assert array[5, 0] == -1


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("rows", [slice(3, 6), np.array([4, 0, 4])])
def test_rows_read_are_copies(path, mode, rows):
    array = np.load(path, mmap_mode=mode)
    before = np.array(array[rows])
    Mapped(array).read(rows)[:] = 0
    Target(array).batch(rows).fill_(0)
    assert np.array_equal(array[rows], before)


def test_arrays_in_memory_have_nothing_to_let_go_of():
    x = np.ones((2, 2))
    release_pages(x)
    assert x.sum() == 4
