"""Three systems on real digits, over seeds, with nothing to download.

MNIST's ten digits are the source, scikit-learn's digits 0–4 the target; a small network learns from
scratch, so every system first trains on the source alone (a warm start), then adapts.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from rich.table import Table

from ba3us.data.digits import PRESENT, mnist_to_digits
from ba3us.engine import Run, Spec, train
from ba3us.engine.opening import OpenedArrays
from ba3us.engine.samples import Arrays
from ba3us.progress import bar
from ba3us.selection import selected_accuracy

SYSTEMS = ("source-only", "e-dann", "ba3us")
OPTIONS: dict[str, Any] = {"steps": 600, "warmup_steps": 300, "backbone_scale": 1.0}
# small discriminators, as a small network that learns from scratch wants them (docs/results/warm_start.md)
OWN: dict[str, dict[str, Any]] = {name: {"discriminator_hidden": 256} for name in SYSTEMS[1:]}


@dataclass(frozen=True)
class Outcome:
    """Target accuracies (%) by system, one per seed, at the weights chosen without labels."""

    accuracies: dict[str, list[float]]
    seconds: float

    def payload(self) -> dict[str, Any]:
        """For ``--json``."""
        rows = [
            {"method": name, "mean": float(np.mean(v)), "std": float(np.std(v)), "accuracies": v}
            for name, v in self.accuracies.items()
        ]
        return {
            "task": f"MNIST (10 digits) -> scikit-learn digits {PRESENT[0]}-{PRESENT[-1]}",
            "selection": "lowest mean target entropy, no target labels",
            "seconds": round(self.seconds, 1),
            "results": rows,
        }

    def table(self) -> Table:
        """For people."""
        seeds = len(next(iter(self.accuracies.values())))
        title = f"MNIST, ten digits → scikit-learn's digits 0–4: target accuracy (%), {self.seconds:.0f} s"
        table = Table("method", *(f"seed {s}" for s in range(seeds)), "mean ± std", title=title)
        for name, values in self.accuracies.items():
            table.add_row(name, *(f"{v:.1f}" for v in values), f"{np.mean(values):.1f} ± {np.std(values):.1f}")
        return table


def run(seeds: int = 3, steps: int = OPTIONS["steps"], workers: int = 0, quiet: bool = False) -> Outcome:
    """Train every system with every seed, in single-threaded runs side by side.

    They repeat exactly on the same machine. Another processor rounds otherwise, and a network that learns from
    scratch makes points of that, as another seed does.
    """
    jobs = [(name, seed, {"steps": steps}) for name in SYSTEMS for seed in range(seeds)]
    accuracies: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    start = time.perf_counter()
    workers = workers or min(len(jobs), torch.get_num_threads())
    with (
        bar("Adapting", len(jobs), show=not quiet) as shown,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        for done, ((name, _, _), accuracy) in enumerate(zip(jobs, pool.map(_accuracy, jobs)), start=1):
            accuracies[name].append(accuracy)
            shown.update(done, ", ".join(f"{n} {np.mean(v):.1f}" for n, v in accuracies.items() if v))
    return Outcome(accuracies, time.perf_counter() - start)


def trained(name: str, seed: int, options: dict[str, Any] | None = None) -> Run:
    """One run of the demo on one thread; `options` over the demo's own."""
    x, y, xt, _ = mnist_to_digits()
    spec = Spec(method=name, options=OPTIONS | OWN.get(name, {}) | (options or {}), seed=seed, threads=1)
    samples = Arrays(x.shape[1:], "small-cnn")
    return train(spec, OpenedArrays(samples, x, y, xt, list(range(10))))[0]


def _accuracy(job: tuple[str, int, dict[str, Any]]) -> float:
    torch.set_num_threads(1)
    return 100 * selected_accuracy(trained(*job), mnist_to_digits()[3])
