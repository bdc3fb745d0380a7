"""``ba3us demo``: three methods on real digits, over seeds, with nothing to download.

MNIST's ten digits are the source, scikit-learn's digits 0–4 the target; pixels are the features. Nothing was
chosen by looking at the target's labels: all settings are ba3us defaults.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from ba3us.adapt import train
from ba3us.assess.scoring import selected_accuracy
from ba3us.data.digits import PRESENT, mnist_to_digits, write_task
from ba3us.data.machine import cpu_count
from ba3us.progress import bar
from ba3us.report import write_run_page
from ba3us.run.opening import open_spec
from ba3us.run.spec import Spec
from ba3us.run.storage import check_free

METHODS = ("source-only", "ba3us-gradual", "auto")
STEPS = 300  # the default of auto


@dataclass(frozen=True)
class Outcome:
    """Target accuracy (%) by method and seed, at the weights selected without labels; the verdict of `auto`."""

    accuracies: dict[str, list[float]]
    seconds: float
    verdict: dict[str, Any]
    page: str | None = None

    def summary(self) -> dict[str, Any]:
        """For ``--json``."""
        results = [
            {"method": name, "mean": float(np.mean(v)), "std": float(np.std(v)), "accuracies": v}
            for name, v in self.accuracies.items()
        ]
        return {
            "task": f"MNIST (10 digits) -> scikit-learn digits {PRESENT[0]}-{PRESENT[-1]}",
            "selection": "lowest mean target entropy, no target labels",
            "seconds": round(self.seconds, 1),
            "results": results,
            "auto": self.verdict,
            "page": self.page,
        }

    def table(self) -> Table:
        """For people."""
        seeds = len(next(iter(self.accuracies.values())))
        title = f"MNIST, ten digits → scikit-learn's digits 0–4: target accuracy (%), {self.seconds:.0f} s"
        table = Table("method", *(f"seed {s}" for s in range(seeds)), "mean ± std", title=title)
        for name, values in self.accuracies.items():
            table.add_row(name, *(f"{v:.1f}" for v in values), f"{np.mean(values):.1f} ± {np.std(values):.1f}")
        table.caption = f"auto, seed 0: {self.verdict['outcome']}. {' '.join(self.verdict['reasons'])}"
        return table


def run(
    seeds: int = 3, steps: int = STEPS, workers: int = 0, quiet: bool = False, out: Path = Path("runs/demo")
) -> Outcome:
    """Train every method with every seed, each on one thread in a process of its own; results repeat exactly.

    The run of `auto` with seed 0 is written to `out` with its page; its feature files are written beside it.
    """
    check_free(out, overwrite=True, resume=False)
    task = write_task(out.with_name(f"{out.name}-data"))
    base = Spec(source=str(task.source), target=str(task.target), method_params={"steps": steps}, n_threads=1)
    specs = [replace(base, method=name, seed=seed) for name in METHODS for seed in range(seeds)]
    outs = [out if (spec.method, spec.seed) == ("auto", 0) else None for spec in specs]
    accuracies: dict[str, list[float]] = {name: [] for name in METHODS}
    verdict: dict[str, Any] = {}
    start = time.perf_counter()
    workers = workers or min(len(specs), cpu_count())
    with (
        bar("Adapting", len(specs), show=not quiet) as progress_bar,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        results = pool.map(_accuracy_and_verdict, specs, outs)
        for done, (spec, (accuracy, found)) in enumerate(zip(specs, results), start=1):
            accuracies[spec.method].append(accuracy)
            verdict = verdict or found
            progress_bar.update(done, ", ".join(f"{n} {np.mean(v):.1f}" for n, v in accuracies.items() if v))
    seconds = time.perf_counter() - start
    page = write_run_page(out, task.labels, show=not quiet, quick=True)
    return Outcome(accuracies, seconds, verdict, str(page))


def _accuracy_and_verdict(spec: Spec, out: Path | None) -> tuple[float, dict[str, Any]]:
    """Train what a spec names; write the run to `out`, if it is given."""
    torch.set_num_threads(1)
    run, target = train(spec, open_spec(spec))
    if out is not None:
        run.save(out, target)
    verdict = {} if run.verdict is None else run.verdict.to_dict()
    return 100 * selected_accuracy(run, mnist_to_digits()[3]), verdict
