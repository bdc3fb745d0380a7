"""Running a benchmark: every job is one method, one task, one seed, on one thread."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ba3us import methods
from ba3us.bench.protocol import Protocol, Task
from ba3us.errors import UserError, require
from ba3us.selection import confusion, summary
from ba3us.training import RunConfig, fit

_MEASURED = ("updates", "seconds", "cpu_seconds", "absent", "lost")  # besides the accuracies


@dataclass(frozen=True)
class Job:
    """One run. `label` is the row it belongs to in tables (by default the method's name)."""

    label: str
    method: str
    task: Task
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What makes two jobs the same, so that finished ones are not run again."""
        return json.dumps(asdict(self), sort_keys=True)


def chosen_methods(text: str) -> list[str]:
    """Names from a comma-separated list; ``all`` is every method that takes features."""
    if text.strip() == "all":
        return [e.name for e in methods.entries() if not {"pixels", "batch norm"} & set(e.info.needs)]
    return [methods.get(name.strip()).name for name in text.split(",") if name.strip()]


def jobs(
    protocol: Protocol, names: Sequence[str], seeds: int, options: dict[str, Any], label: str = "{method}"
) -> list[Job]:
    """All combinations; an option that a method does not have is left out for it.

    An option may be one method's own: ``etn.learning_rate``.
    """
    require(seeds >= 1, f"The number of seeds is {seeds}: it must be at least 1.")
    for name in names:
        require("pixels" not in methods.get(name).info.needs, f"Method {name!r} needs pixels, not features.")
    made = []
    for name in names:
        known = methods.get(name).method.Config.__dataclass_fields__
        own = {k[len(name) + 1 :]: v for k, v in options.items() if k.startswith(f"{name}.")}
        chosen = {k: v for k, v in {**protocol.options, **options}.items() if k in known} | own
        methods.get(name).config(**chosen)
        made += [
            Job(label.format(method=name), name, task, seed, chosen)
            for task in protocol.tasks
            for seed in range(seeds)
        ]
    unused = [k for k in options if not any(k in (o, f"{j.method}.{o}") for j in made for o in j.options)]
    require(not unused, f"Option {', '.join(map(repr, unused))} belongs to none of the methods chosen.")
    return made


def run(
    protocol: Protocol, todo: Sequence[Job], out: Path, workers: int = 0, quiet: bool = False
) -> pd.DataFrame:
    """Run the jobs that `out` (a file of JSON lines) has not got yet; returns one row per job."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {row["key"]: row for row in _read(out)}
    open_jobs = [job for job in todo if job.key not in done]
    workers = workers or torch.get_num_threads()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=Console(stderr=True), disable=quiet) as progress,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        out.open("a", encoding="utf-8") as file,
    ):
        bar = progress.add_task("starting", total=len(todo), completed=len(todo) - len(open_jobs))
        running = {pool.submit(_execute, protocol, job): job for job in open_jobs}
        try:
            for future in as_completed(running):
                row = future.result()
                done[row["key"]] = row
                file.write(json.dumps(row) + "\n")
                file.flush()
                said = f"{row['label']} {row['task']} {100 * row['min-entropy']:.1f}"
                progress.update(bar, advance=1, description=said)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return pd.DataFrame([done[job.key] for job in todo]).drop(columns="key")


def _read(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"Line {number} of {path} is damaged: delete it, or choose another --out."
            ) from error
        missing = [name for name in _MEASURED if name not in row]
        if missing:
            raise UserError(
                f"Line {number} of {path} has no {missing[0]!r}, from another version: choose another --out."
            )
        yield row


def _execute(protocol: Protocol, job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    source, target, labels = protocol.load(job.task)
    config = RunConfig(seed=job.seed, threads=1)
    start, cpu_start = time.perf_counter(), time.process_time()
    result = fit(job.method, source, target, options=job.options, config=config)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return {
        "key": job.key,
        "label": job.label,
        "method": job.method,
        "task": str(job.task),
        "seed": job.seed,
        "updates": sum(p.steps for p in result.recipe.phases),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 3),
        **summary(result, labels),
        **confusion(result, labels),
        "figures": _last_figures(result.history),
    }


def _last_figures(history: pd.DataFrame) -> dict[str, float]:
    """What the terms and figures of a run were in the end: means over its last five rows of history."""
    means = history.tail(5).drop(columns=["phase", "step"], errors="ignore").mean().dropna()
    return {str(name): round(float(value), 5) for name, value in means.items()}
