"""Three systems on real digits, over seeds, with nothing to download.

MNIST's ten digits are the source, scikit-learn's digits 0–4 the target; pixels are the features. Nothing was
chosen by looking at the target's labels: all settings are the package's own.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.table import Table

from ba3us.adapt import train
from ba3us.assess.scoring import selected_accuracy
from ba3us.data.digits import PRESENT, DigitFiles, mnist_to_digits, write_task
from ba3us.data.machine import cpu_count
from ba3us.progress import bar
from ba3us.report import write_run_page
from ba3us.run.opening import open_spec
from ba3us.run.run import Run
from ba3us.run.spec import Spec
from ba3us.run.storage import check_free

SYSTEMS = ("source-only", "ba3us-gradual", "auto")
STEPS = 300  # the automatic choice's own


@dataclass(frozen=True)
class Outcome:
    """Target accuracy (%) by method and seed, at the weights selected without labels; `auto`'s verdict."""

    accuracies: dict[str, list[float]]
    seconds: float
    verdict: dict[str, Any]
    page: str | None = None

    def summary(self) -> dict[str, Any]:
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
    """Train every system with every seed, in single-threaded runs side by side; they repeat exactly.

    The automatic run of seed 0 is written to `out` with its page; the files it read lie beside.
    """
    check_free(out, overwrite=True, resume=False)
    task = write_task(out.with_name(f"{out.name}-data"))
    jobs = [
        Job(task, name, seed, steps, out if (name, seed) == ("auto", 0) else None)
        for name in SYSTEMS
        for seed in range(seeds)
    ]
    accuracies: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    verdict: dict[str, Any] = {}
    start = time.perf_counter()
    workers = workers or min(len(jobs), cpu_count())
    with (
        bar("Adapting", len(jobs), show=not quiet) as progress_bar,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        for done, (job, result) in enumerate(zip(jobs, pool.map(_outcome, jobs)), start=1):
            accuracies[job.system].append(result[0])
            verdict = verdict if job.out is None else result[1]
            progress_bar.update(done, ", ".join(f"{n} {np.mean(v):.1f}" for n, v in accuracies.items() if v))
    seconds = time.perf_counter() - start
    return Outcome(
        accuracies, seconds, verdict, str(write_run_page(out, task.labels, show=not quiet, quick=True))
    )


class Job(NamedTuple):
    """One run of the demo; `out` is where to write it, if anywhere."""

    task: DigitFiles
    system: str
    seed: int
    steps: int = STEPS
    out: Path | None = None


def trained(job: Job) -> Run:
    """Carry a job out, on one thread."""
    spec = Spec(
        source=str(job.task.source),
        target=str(job.task.target),
        method=job.system,
        method_params={"steps": job.steps},
        seed=job.seed,
        n_threads=1,
    )
    run, target = train(spec, open_spec(spec))
    if job.out is not None:
        run.save(job.out, target)
    return run


def _outcome(job: Job) -> tuple[float, dict[str, Any]]:
    torch.set_num_threads(1)
    run = trained(job)
    verdict = {} if run.verdict is None else run.verdict.to_dict()
    return 100 * selected_accuracy(run, mnist_to_digits()[3]), verdict
