"""How long the tables of 100,000 runs take to open.

    python benchmarks/database.py [--runs 100000] [--file FILE]

Fills a database with made-up runs (ten methods, twenty tasks, 500 seeds; predictions of 300 rows at ten
evaluations each, chosen by every rule) the way a benchmark writes them, then times what `ba3us bench` does
with a finished study: open, find what is done, read, make the tables.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from ba3us import methods
from ba3us.bench.database import Database
from ba3us.bench.domains import Dataset, File, Pair
from ba3us.bench.jobs import Job, Outcome
from ba3us.bench.tables import tables, terminal
from ba3us.training.evaluation import rules_for_records

METHODS = [entry.name for entry in methods.entries()][:10]
ROWS, LOOKS, TASKS = 300, 10, 20


def outcome(generator: np.random.Generator, labels: np.ndarray) -> Outcome:
    right = generator.random((LOOKS, ROWS)) < generator.uniform(0.5, 0.95)
    predictions = np.where(right, labels, generator.integers(0, 31, (LOOKS, ROWS)))
    looks = pd.DataFrame({"phase": "main", "step": range(LOOKS), "candidate": True})
    for rule in rules_for_records():
        looks[rule] = generator.random(LOOKS)
    selected = {rule: int(looks[rule].argmax()) for rule in rules_for_records()}
    history = pd.DataFrame({"step": range(20), "loss": generator.random(20)})
    means = generator.dirichlet(np.ones(31), LOOKS).astype(np.float32)
    return Outcome(history, looks, predictions, means, selected, 500, 5.0, 4.0, {})


def fill(path: Path, runs: int) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, ROWS)
    nothing = np.zeros(0, dtype=np.int64)
    pair = Pair(File(Path("a"), ""), File(Path("b"), ""), nothing, nothing, nothing, 31)
    options = {name: vars(methods.get(name).options()) for name in METHODS}
    named = ((seed, t, m) for seed in itertools.count() for t in range(TASKS) for m in METHODS)
    outcomes = [outcome(generator, labels) for _ in range(200)]
    with Database(path) as database:
        database.add_datasets("made-up", [Dataset("t0", "", pair, labels, ("x",), "data")])
        for i, (seed, t, m) in enumerate(itertools.islice(named, runs)):
            job = Job(
                label=m,
                protocol="made-up",
                task=f"t{t}",
                variant="",
                method=m,
                seed=seed,
                options=options[m],
                settings="ours",
                data="data",
                pair=pair,
                key=f"{i:032x}",
            )
            database.record(job, outcomes[i % len(outcomes)], labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--file", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.file or Path(folder) / "runs.sqlite"
        if not path.exists():
            start = time.perf_counter()
            fill(path, args.runs)
            seconds, size = time.perf_counter() - start, path.stat().st_size / 1e6
            print(f"filled {args.runs} runs in {seconds:.1f} s, {size:.0f} MB")
        for _ in range(3):
            times = [time.perf_counter()]
            with Database(path) as database:
                database.outcomes()
                times.append(time.perf_counter())
                rows = database.table()
                times.append(time.perf_counter())
            terminal(tables(rows, "made-up", ["entropy"]))
            times.append(time.perf_counter())
            parts = zip(("open", "read", "tables"), np.diff(times))
            print(", ".join(f"{n} {t:.2f} s" for n, t in parts) + f", in all {times[-1] - times[0]:.2f} s")


if __name__ == "__main__":
    main()
