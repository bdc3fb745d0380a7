"""Small feature files with protocols over them, and stand-ins for training that workers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd

from ba3us.bench.jobs import Outcome, execute

NAMES = ["ant", "bee", "cat"]
FAST = {"steps": 4, "batch_size": 4, "bottleneck": 4}
PROTOCOL = "domains: {P: one.npz, Q: two.npz}\ntasks: [P->Q, Q->P]\ntarget: {classes: [ant, cat]}\n"


def write_domain(path: Path, names: list[str] = NAMES, rows: int = 30, seed: int = 0, **more: object) -> None:
    """Clouds, one per class; the features point at the class's place in NAMES however `names` are numbered."""
    labels = np.arange(rows) % len(names)
    own = np.array([NAMES.index(n) if n in NAMES else 0 for n in names])[labels]
    noise = np.random.default_rng(seed).normal(size=(rows, 3))
    features = (np.eye(3)[own] * 5 + noise).astype(np.float32)
    np.savez(path, features=features, labels=labels, class_names=np.array(names), **more)


def write_protocol(folder: Path, text: str = PROTOCOL, name: str = "toy") -> Path:
    """Two domains, the second of which numbers its classes the other way round, and a protocol over them."""
    write_domain(folder / "one.npz")
    write_domain(folder / "two.npz", NAMES[::-1], seed=1)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def outcome(predictions: list[list[int]], scores: list[float]) -> Outcome:
    """A made-up outcome: one evaluation per row of predictions, all candidates."""
    evaluations = [{"phase": "main", "step": i, "candidate": True, "entropy": s} for i, s in enumerate(scores)]
    history = pd.DataFrame([{"step": 1, "loss": 0.5}])
    selected = {"entropy": int(np.argmin(scores))}
    means = np.full((len(scores), 3), 0.25, dtype=np.float32)
    summary = {"verdict": None}
    return Outcome(
        history, pd.DataFrame(evaluations), np.array(predictions), means, selected, 4, 1.0, 0.5, summary
    )


def marked(job) -> Outcome:
    """Train, and leave a file per execution in the folder that BENCH_MARKS names."""
    folder = Path(os.environ["BENCH_MARKS"])
    (folder / f"{job.key}.{time.time_ns()}").touch()
    return execute(job)


def slow_after_two(job) -> Outcome:
    """As `marked`; every job after the second waits until it is killed."""
    if len(list(Path(os.environ["BENCH_MARKS"]).iterdir())) >= 2:
        time.sleep(600)
    return marked(job)


def deaf(job) -> Outcome:
    """Seed 1 does not listen to a polite signal; the others wait until it does not."""
    mark = Path(os.environ["BENCH_MARKS"]) / "deaf"
    if job.seed == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark.touch()
        time.sleep(600)
    while not mark.exists():
        time.sleep(0.01)
    return marked(job)


def talkative(job) -> Outcome:
    """Tells of a half, then trains."""
    assert job.on_progress is not None
    job.on_progress(0.5)
    return execute(job)


def deadly(job) -> Outcome:
    """Seed 1 kills its own process, seed 2 raises."""
    if job.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.seed == 2:
        raise ValueError("the loss is nan\nand more")
    return execute(job)


def doomed(job) -> Outcome:
    """On the node that the file `doomed` names, wait for its end; elsewhere train."""
    import ray

    folder = Path(os.environ["BENCH_MARKS"])
    if ray.get_runtime_context().get_node_id() == (folder / "doomed").read_text():
        (folder / "caught").touch()
        time.sleep(600)
    return execute(job)
