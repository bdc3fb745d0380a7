"""Runs on a Ray cluster of two nodes, both on this machine: one dies, nothing is lost, figures are the same."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from bench_toys import FAST, doomed, write_protocol
from test_bench_local import COLUMNS
from test_bench_study import call

from ba3us import bench
from ba3us.bench import workers
from ba3us.bench.database import Database
from ba3us.bench.jobs import read_samples as features_of
from ba3us.errors import UserError

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
# Ray takes 127.0.0.1 for the address that other machines see; on Linux every 127.x.x.x stays on this one
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "node_ip_address": LOOPBACK}


@pytest.fixture
def marks(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("BENCH_MARKS", str(folder))
    return folder


@pytest.fixture
def nodes(marks, monkeypatch):
    """A head and a second node that is to die."""
    from ray.cluster_utils import Cluster

    here, package = Path(__file__).parent, Path(bench.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, package))))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    second = made.add_node(**NODE)
    (marks / "doomed").write_text(second.node_id)
    yield made, second
    ray.shutdown()
    made.shutdown()


def test_a_node_dies_nothing_is_lost_and_figures_are_the_local_ones(tmp_path, nodes, marks):
    made, second = nodes
    study = bench.prepare(write_protocol(tmp_path), methods="source-only,dann", seeds=1, options=FAST)

    def kill():
        while not (marks / "caught").exists():
            time.sleep(0.05)
        made.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    for name in ("one.npz", "two.npz"):  # samples are shipped: tasks need no file
        (tmp_path / name).rename(tmp_path / f"moved_{name}")
    samples = {}

    def shipped(file):
        moved = file._replace(path=tmp_path / f"moved_{file.path.name}")
        return samples.setdefault(file, features_of(moved))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "read_samples", shipped)
        spread = bench.run(study, tmp_path / "ray.sqlite", work=doomed, address=made.address)
    killer.join()
    assert set(spread["outcome"]) == {"ok"} and len(spread) == 4
    assert not ray.is_initialized()
    for name in ("one.npz", "two.npz"):
        (tmp_path / f"moved_{name}").rename(tmp_path / name)
    local = bench.run(study, tmp_path / "local.sqlite", workers=1)
    pd.testing.assert_frame_equal(spread[COLUMNS], local[COLUMNS])
    with Database(tmp_path / "ray.sqlite") as one, Database(tmp_path / "local.sqlite") as two:
        for key in spread["key"]:
            assert (one.run(key).probabilities == two.run(key).probabilities).all()
            pd.testing.assert_frame_equal(one.run(key).history, two.run(key).history)
    # whoever stops early leaves no task and no connection behind
    (marks / "doomed").write_text("none")
    ended = workers.run_on_ray(study.jobs, made.address)
    next(ended)
    ended.close()
    assert not ray.is_initialized()


def test_a_machine_with_other_versions_is_refused(tmp_path):
    job = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=1, options=FAST).jobs[0]
    failed = workers._run_task(doomed, job, {"ba3us": "0"})
    assert "use the same" in failed.reason


def test_without_a_cluster_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = ("--methods", "source-only", "--seeds", 1, "--out", tmp_path / "b.sqlite")
    said = call(write_protocol(tmp_path), *words, "--engine", "ray", "--address", "127.0.0.1:1")
    assert isinstance(said.exception, UserError) and "no Ray cluster at '127.0.0.1:1'" in str(said.exception)
    said = call(write_protocol(tmp_path), *words, "--engine", "rai")
    assert "Unknown engine 'rai'" in str(said.exception)
