"""A study: a protocol and the methods to run on it; running it; its tables."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ba3us.bench.database import Database, Failure
from ba3us.bench.domains import STAND_IN, Dataset, dataset, find_domains
from ba3us.bench.jobs import (
    Job,
    MethodRow,
    are_images,
    execute,
    fill_caches,
    image_settings,
    jobs,
    method_rows,
    parse_methods,
    restrict,
    tuned_with_labels,
)
from ba3us.bench.protocol import Protocol, Subset, read_protocol
from ba3us.bench.tables import Table, markdown, tables
from ba3us.bench.workers import Work, run_local, run_on_ray
from ba3us.errors import UserError, did_you_mean, require
from ba3us.progress import bar
from ba3us.training.evaluation import rules_for_records


@dataclass(frozen=True)
class Study:
    """The runs of a protocol: its datasets, the jobs, and notes that stand below every table."""

    protocol: Protocol
    datasets: list[Dataset]
    jobs: list[Job]
    notes: list[str]


def prepare(
    named: str | Path,
    root: Path | None = None,
    *,
    methods: str | Sequence[MethodRow] = "source-only,e-dann,ba3us",
    seeds: int | None = None,
    options: dict[str, Any] | None = None,
    label: str = "{method}",
    tasks: str | None = None,
    variants: str | None = None,
    selection: str | None = None,
    images: dict[str, Any] | None = None,
    skip_count_check: bool = False,
    first: Sequence[int] = (),
    evaluate_every: int | None = None,
) -> Study:
    """Read a protocol, check its data, and list the runs.

    Parameters
    ----------
    named : str or path
        A shipped protocol, or a YAML file.
    root : path, optional
        Folder of the data; by default the protocol's.
    methods : str or sequence of MethodRow
        Comma-separated names, ``all``, or rows with options of their own.
    seeds : int, optional
        How many; by default the protocol's.
    options : dict, optional
        Hyper-parameters, for all methods that have them (``steps``) or for one (``etn.steps``).
    label : str
        A pattern for the rows of tables, with ``{method}``.
    tasks, variants, selection : str, optional
        Comma-separated names of tasks, targets and selection rules; by default the protocol's.
    images : dict, optional
        Fields of a spec, for domains of images.
    skip_count_check : bool
        Do not compare the numbers of samples with those the protocol expects.
    first : sequence of int
        In place of the protocol's targets: the first k classes, for every k for which there are enough.
    evaluate_every : int, optional
        Evaluate the target also every so many steps.
    """
    protocol = restrict(read_protocol(named), tasks, variants, selection)
    protocol = dataclasses.replace(protocol, expected={}) if skip_count_check else protocol
    known = rules_for_records()
    for rule in protocol.selection:
        require(rule in known, f"Unknown selection rule {rule!r}: {did_you_mean(rule, known)}")
    domains, problems = find_domains(protocol, root, bool(images))
    if problems:
        rest = f" ({len(problems) - 1} more; ba3us bench {protocol.name} --check lists them)"
        raise UserError(problems[0] + (rest if len(problems) > 1 else ""))
    requested = images or {}
    settings = image_settings(protocol, requested) if are_images(domains.values(), requested) else None
    rows = methods
    if isinstance(rows, str):
        rows = method_rows(parse_methods(rows, settings is not None), label)
    if first:  # as far as all tasks have so many classes
        pairs = [domains[t.source].counts.keys() & domains[t.target].counts.keys() for t in protocol.tasks]
        n_shared = min(len(shared & set(protocol.classes or shared)) for shared in pairs)
        targets = tuple(Subset(str(k), first=k) for k in first if k <= n_shared)
        require(
            bool(targets), f"Source and target share {n_shared} classes, none of {list(first)}: ask for fewer."
        )
        protocol = dataclasses.replace(protocol, targets=targets)
    datasets = [
        dataset(protocol, domains, task, subset) for task in protocol.tasks for subset in protocol.targets
    ]
    listed = jobs(protocol, datasets, rows, seeds or protocol.seeds, options or {}, settings, evaluate_every)
    if settings is None:
        used = ", ".join(sorted({d.backbone for d in domains.values() if d.backbone}))
        other = protocol.backbone not in (None, used)
        expected = f" (the protocol's backbone is {protocol.backbone})" if other else ""
        notes = [f"Features: frozen, {used or 'as in the files'}{expected}."]
    else:
        spec = settings.spec
        precision = "" if spec.precision == "float32" else f", {spec.precision}"
        notes = [f"Images: {spec.backbone}, trained: {spec.train}, views: {spec.views}{precision}."]
    if tuned := tuned_with_labels(protocol, [row.method for row in rows]):
        notes.append(f"Published settings of single tasks tuned with target labels: {', '.join(tuned)}.")
    if skip_count_check:
        notes.append("Samples were not counted.")
    if evaluate_every is not None:
        notes.append(f"The target was also evaluated every {evaluate_every} steps.")
    folder = root or protocol.folder
    stand_ins = (place / STAND_IN for place in (folder, folder.resolve().parent))
    notes += [file.read_text(encoding="utf-8").strip() for file in stand_ins if file.is_file()]
    return Study(protocol, datasets, listed, notes)


def check(named: str | Path, root: Path | None = None, tasks: str | None = None) -> tuple[list[str], list[str]]:
    """Descriptions of the domains of a protocol's tasks, and problems with them, a sentence each."""
    domains, problems = find_domains(restrict(read_protocol(named), tasks, None, None), root)
    descriptions = [
        f"Domain {d.name} ({d.file.path}): {len(d.classes)} samples of {len(d.counts)} classes."
        for d in domains.values()
    ]
    return descriptions, problems


def run(
    study: Study,
    out: Path,
    workers: int = 0,
    retry_failed: bool = False,
    show: bool = False,
    work: Work = execute,
    address: str | None = None,
    with_points: bool = False,
) -> pd.DataFrame:
    """Run what the database `out` lacks; returns a row per job, with the columns of :meth:`Database.table`.

    With the `address` of a Ray cluster its machines run it, else processes on this one. With `with_points`
    finished runs must have points, which `work` must then give.
    """
    running, n_done, last = dict[str, tuple[str, float]](), 0, ""

    def update() -> None:
        names = ", ".join(f"{name} {part:.0%}" for name, part in list(running.values())[:3])
        parts = sum(part for _, part in running.values())
        progress.update(n_done + parts, " · ".join(filter(None, (last, names))))

    def on_progress(job: Job, part: float) -> None:
        running[job.key] = f"{job.label} {job.task}", part
        update()

    with Database(out) as database:
        database.add_datasets(study.protocol.name, study.datasets)
        if retry_failed:
            database.forget_failed(job.key for job in study.jobs)
        stored = database.outcomes(with_points)
        todo = [job for job in study.jobs if job.key not in stored]
        labels = {data.digest: data.labels for data in study.datasets}
        needed = {job.data: (job.images, job.pair) for job in todo}
        fill_caches(((images, pair) for images, pair in needed.values() if images is not None), show)
        try:
            # another benchmark may have been faster by the time a job's turn comes
            missing = (job for job in todo if not database.has(job.key, with_points))
            with bar("Benchmark", len(todo), show) as progress:
                if address is None:
                    on_gpu = any(job.images is not None and job.images.spec.device == "cuda" for job in todo)
                    workers = workers or int(on_gpu)  # runs would fight for the memory of the one device
                    outcomes = run_local(missing, workers, work, on_progress)
                else:
                    outcomes = run_on_ray(missing, address, workers, work)
                for job, outcome in outcomes:
                    database.record(job, outcome, labels[job.data])
                    running.pop(job.key, None)
                    failed = "failed" if isinstance(outcome, Failure) else ""
                    n_done, last = (
                        n_done + 1,
                        " ".join(filter(None, (job.label, job.task, job.variant, failed))),
                    )
                    update()
        except (KeyboardInterrupt, SystemExit):
            left = len({job.key for job in todo} - database.outcomes(with_points).keys())
            print(f"Stopped with {left} runs to go: the same command goes on from {out}.", file=sys.stderr)
            raise
        columns = ["label", "protocol", "task", "variant", "method", "seed", "settings"]
        runs = database.table(job.key for job in study.jobs)
        jobs = pd.DataFrame([{name: getattr(job, name) for name in ["key", *columns]} for job in study.jobs])
        return jobs.merge(runs.drop(columns=columns), on="key", how="left")


def count_failed(rows: pd.DataFrame) -> int:
    """How many runs failed."""
    return int((rows["outcome"] == "failed").sum())


def study_tables(study: Study, rows: pd.DataFrame) -> list[Table]:
    """The tables of a study that has been run."""
    protocol = study.protocol
    return tables(rows, protocol.title, protocol.selection, protocol.paper, study.notes)


def page(study: Study, tables: Sequence[Table]) -> str:
    """A page of results in Markdown: the command and versions, then the tables."""
    command, versions = command_and_versions(study)
    return f"# {study.protocol.title}\n\n    {command}\n\n{versions}.\n\n{markdown(tables)}"


def command_and_versions(study: Study) -> tuple[str, str]:
    """The command that was typed, and the versions (and commit) it was run with."""
    versions = [f"{name} {version}" for name, version in study.jobs[0].spec["versions"].items()]
    if revision := commit():
        versions.append(f"commit {revision}")
    return shlex.join(["ba3us", *sys.argv[1:]]), ", ".join(versions)


def commit() -> str | None:
    """The commit of the package, where it lies in a repository."""
    call = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
