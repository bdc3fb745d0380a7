"""Rows on disk under keys: whole shards, budget, eviction, and processes at once."""

from __future__ import annotations

import multiprocessing
import os
import time

import numpy as np
import pytest

from ba3us.data import store as stores
from ba3us.data.store import Store, cache_folder
from ba3us.errors import UserError

KEYS = [bytes([i]) * 16 for i in range(20)]


def rows(numbers, shape=(2, 3)):
    return np.stack([np.full(shape, n, dtype=np.uint8) for n in numbers])


def make(folder, budget=10**6, wanted=KEYS, shape=(2, 3)):
    return Store(folder, shape, np.uint8, budget, wanted)


def test_rows_come_back(tmp_path):
    store = make(tmp_path)
    assert store.add(KEYS[:3], rows([0, 1, 2])) == 3
    for one in (store, make(tmp_path)):
        content, found = one.read([KEYS[2], KEYS[7], KEYS[0], KEYS[2]])
        assert found.tolist() == [True, False, True, True]
        assert content[[0, 2, 3], 0, 0].tolist() == [2, 0, 2]
        assert KEYS[1] in one and KEYS[7] not in one
    assert make(tmp_path, wanted=KEYS[5:]).read([KEYS[1]])[1].tolist() == [False]
    assert len(store.read([])[0]) == 0


def test_default_place(monkeypatch, tmp_path):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x"
    monkeypatch.delenv("BA3US_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ba3us"


def test_missing_goes_shard_by_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_SHARD_BYTES", 4 * 6)
    store = make(tmp_path)
    make(tmp_path).add(KEYS[1:3], rows([1, 2]))  # another process
    assert store.missing(KEYS[:10], 0) == ([0, 3, 4, 5], 6)
    store.note([KEYS[8]])
    assert store.missing(KEYS[:10], 6) == ([6, 7, 8, 9], 10)
    assert store.missing(KEYS[:10], 6, unseen=True) == ([6, 7, 9], 10)
    assert make(tmp_path).missing(KEYS[8:10], 0, unseen=True) == ([1], 2)


def test_budget_and_eviction(tmp_path, monkeypatch):
    store = make(tmp_path, budget=6 * 6)
    assert store.add(KEYS[:4], rows(range(4))) == 4
    assert store.add(KEYS[4:8], rows(range(4, 8))) == 2  # what was used just now is not thrown away
    assert store.add(KEYS[8:9], rows([8])) == 0
    monkeypatch.setattr(stores, "_IDLE_SECONDS", 0)
    oldest = next(p for p in store.folder.glob("*.rows") if p.stat().st_size == 4 * 6)
    os.utime(oldest, (time.time() - 100, time.time() - 100))
    other = Store(tmp_path, (3,), np.float32, 6 * 6, KEYS)  # another shape, the same budget
    assert other.add(KEYS[:1], np.ones((1, 3))) == 1
    assert not oldest.exists()
    found = store.read(KEYS[:6])[1]
    assert found.tolist() == [False] * 4 + [True] * 2 and KEYS[0] not in store


def test_without_a_budget_nothing_is_written(tmp_path):
    store = make(tmp_path / "none", budget=0)
    with store.locked():
        assert store.add(KEYS[:1], rows([1])) == 0
        store.note(KEYS[:1])
    assert not (tmp_path / "none").exists() and store.missing(KEYS[:1], 0, unseen=True) == ([], 1)


def test_without_a_budget_nothing_is_thrown_away(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_IDLE_SECONDS", -1)
    make(tmp_path).add(KEYS[:3], rows([0, 1, 2]))
    before = sorted(tmp_path.rglob("*"))
    none = make(tmp_path, budget=0)
    assert none.make_room(1) == 0 and none.add(KEYS[3:4], rows([3])) == 0
    assert not none.read(KEYS[:3])[1].any() and sorted(tmp_path.rglob("*")) == before


def test_place_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"can't be made .*BA3US_CACHE"):
        make(tmp_path / "file" / "cache")


def test_full_disk_goes_on_without(tmp_path, monkeypatch):
    store = make(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stores.os, "replace", full)
    assert store.add(KEYS[:1], rows([1])) == 0
    assert not list(store.folder.glob("*"))


def test_what_a_killed_process_left_is_removed(tmp_path):
    store = make(tmp_path)
    store.add(KEYS[:1], rows([1]))
    (store.folder / "half.rows.part").write_bytes(b"x")
    (store.folder / "orphan.rows").write_bytes(b"x" * 6)
    with store.locked():
        pass
    assert sorted(p.suffix for p in store.folder.iterdir() if p.name != "lock") == [".keys", ".rows"]
    assert store.read(KEYS[:1])[1].all()


def test_cut_shard_is_ignored(tmp_path):
    make(tmp_path).add(KEYS[:2], rows([1, 2]))
    path = next(tmp_path.glob("*/*.rows"))
    path.write_bytes(path.read_bytes()[:-1])
    assert not make(tmp_path).read(KEYS[:2])[1].any()


def test_few_shards_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_OPEN_SHARDS", 2)
    store = make(tmp_path)
    for n in range(4):
        store.add([KEYS[n]], rows([n]))
    content, found = store.read(KEYS[:4])
    assert found.all() and content[:, 0, 0].tolist() == [0, 1, 2, 3] and len(store._open) == 2


def _fill(folder, queue):
    store = make(folder)
    at = made = 0
    while at < len(KEYS):
        with store.locked():
            positions, at = store.missing(KEYS, at)
            time.sleep(0.005)
            if positions:
                made += store.add([KEYS[p] for p in positions], rows(positions))
    queue.put((made, bool(store.read(KEYS)[1].all())))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="starts processes by forking")
def test_two_processes_share_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_SHARD_BYTES", 2 * 6)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_fill, args=(tmp_path, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    (made, whole), (made_too, whole_too) = queue.get(timeout=30), queue.get(timeout=30)
    for process in processes:
        process.join()
    assert whole and whole_too and made + made_too == len(KEYS)  # nothing twice
    content, _ = make(tmp_path).read(KEYS)
    assert content[:, 0, 0].tolist() == list(range(20))
