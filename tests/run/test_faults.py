"""Runs killed at bad moments: what is left is recognised, and nobody outlives the one it works for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from arrays_toys import NAMES, clouds
from ba3us import adapt as engine
from ba3us.data.images import Skipped
from ba3us.errors import UserError
from ba3us.run import storage as files
from ba3us.run.spec import Spec

X, Y, XT, _ = clouds()
SMALL = {"steps": 20, "bottleneck": 8}


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=NAMES)
    np.savez(tmp_path / "t.npz", features=XT)
    return tmp_path


def adapt(data, **more):
    spec = Spec(
        source=str(data / "s.npz"),
        target=str(data / "t.npz"),
        method="source-only",
        method_params=SMALL,
        n_threads=1,
    )
    return engine.adapt(spec, data / "run", **more)


@pytest.mark.parametrize("left", ["", "state.ckpt", ".state.ckpt.0123456789ab.part", "state.ckpt.diverged"])
def test_a_kill_at_the_first_checkpoint_can_be_resumed_or_overwritten(data, left):
    for how in ("resume", "overwrite"):
        kept = data / "run" / "checkpoints"
        kept.mkdir(parents=True)
        if left.endswith(".part"):
            (kept / left).mkdir()
            (kept / left / "state.ckpt").write_bytes(b"half")
        elif left and (left != "state.ckpt" or how == "overwrite"):
            (kept / left).write_bytes(b"half")
        with pytest.raises(UserError, match="There is an interrupted run in"):
            adapt(data)
        adapt(data, **{how: True})
        assert files.is_run(data / "run") and not kept.exists()
        assert not [path for path in data.iterdir() if path.name.startswith(".")]
        for path in (data / "run").iterdir():
            path.unlink()
        (data / "run").rmdir()


def test_a_folder_of_somebody_else_is_no_interrupted_run(data):
    (data / "run" / "checkpoints").mkdir(parents=True)
    (data / "run" / "checkpoints" / "theirs.pt").write_bytes(b"")
    with pytest.raises(UserError, match="holds other files"):
        adapt(data, overwrite=True)


PARENT = """
import multiprocessing, sys, time
from ba3us.auto.candidates import serve_parent
def work():
    serve_parent()
    time.sleep(600)
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    print(child.pid, flush=True)
    child.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills with a POSIX signal")
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    time.sleep(0.5)  # it may not serve yet
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = alive(worker)
    if left:
        os.kill(worker, signal.SIGKILL)
    assert not left


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_was_skipped_is_listed_whole_or_not_at_all(tmp_path):
    path = tmp_path / "skipped.csv"
    path.write_text("old")

    def listed():
        yield Skipped("a.jpg", "empty")
        raise OSError(28, "No space left on device")

    class Items(list):
        def __iter__(self):
            return listed()

    with pytest.raises(UserError, match="No space left on device"):
        files.write_skipped(path, {"data": Items(["one"])})
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1
