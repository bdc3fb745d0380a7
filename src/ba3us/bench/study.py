"""A study: a protocol, the methods to put through it, and the tables that come out."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ba3us.bench.database import Database, Failure
from ba3us.bench.domains import STAND_IN, Dataset, Domain, dataset, inspect
from ba3us.bench.jobs import (
    Job,
    Outcome,
    Sight,
    System,
    check_kind,
    chosen_methods,
    execute,
    jobs,
    labelled,
    narrowed,
    sight,
    tuned_with_labels,
    warm,
)
from ba3us.bench.protocol import Protocol, Subset, read_protocol
from ba3us.bench.tables import Table, markdown, tables
from ba3us.bench.workers import Work, run_local, run_on_ray
from ba3us.errors import did_you_mean, require
from ba3us.progress import bar
from ba3us.training.evaluation import rules_for_records

# --- study ------------------------------------------------------------------------------------------------
# A study: a protocol, the methods to put through it, and the tables that come out.


Begin = Callable[..., Iterator[tuple[Job, Outcome | Failure]]]  # given whom to tell of shares
_MOST_NAMED = 3  # runs that a line of progress has room for
_NAMED = ("key", "label", "protocol", "task", "variant", "method", "seed", "settings")


@dataclass(frozen=True)
class Study:
    """What is to be run."""

    protocol: Protocol
    datasets: list[Dataset]
    jobs: list[Job]
    notes: list[str]


def prepare(
    named: str | Path,
    root: Path | None = None,
    *,
    methods: str | Sequence[System] = "source-only,e-dann,ba3us",
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
    """Read a protocol, check its data, and list the runs; lists of names are comma-separated.

    `images` are fields of a spec, for domains of images; `anyway` leaves out to count samples. `first`: in
    place of the protocol's targets, those with the first so many classes, as far as there are so many.
    `evaluate_every`: look at the target also every so many updates.
    """
    protocol = narrowed(read_protocol(named), tasks, variants, selection)
    protocol = dataclasses.replace(protocol, expected={}) if skip_count_check else protocol
    known = rules_for_records()
    for rule in protocol.selection:
        require(rule in known, f"Unknown selection rule {rule!r}: {did_you_mean(rule, known)}")
    domains, wrong = inspect(protocol, root, bool(images))
    rest = f"{len(wrong) - 1} more; ba3us bench {protocol.name} --check lists them"
    more = f" ({rest})" if len(wrong) > 1 else ""
    require(not wrong, f"{wrong[0] if wrong else ''}{more}")
    seen = sight(protocol, images or {}) if check_kind(domains.values(), images or {}) else None
    systems = methods
    if isinstance(systems, str):
        systems = labelled(chosen_methods(systems, seen is not None), label)
    if first:
        protocol = _with_first(protocol, domains, first)
    datasets = [
        dataset(protocol, domains, task, subset) for task in protocol.tasks for subset in protocol.targets
    ]
    todo = jobs(protocol, datasets, systems, seeds or protocol.seeds, options or {}, seen, evaluate_every)
    notes = _notes(protocol, [s.method for s in systems], {d.backbone for d in domains.values()}, seen)
    notes += ["Samples were not counted."] if skip_count_check else []
    if evaluate_every is not None:
        notes.append(f"The target was also looked at every {evaluate_every} updates.")
    folder = root or protocol.folder
    stand_ins = (place / STAND_IN for place in (folder, folder.resolve().parent))
    notes += [file.read_text(encoding="utf-8").strip() for file in stand_ins if file.is_file()]
    return Study(protocol, datasets, todo, notes)


def _with_first(protocol: Protocol, domains: dict[str, Domain], first: Sequence[int]) -> Protocol:
    """Targets of the first k classes, for every k that all tasks have classes for."""
    counts = [domains[t.source].counts.keys() & domains[t.target].counts.keys() for t in protocol.tasks]
    most = min(len(shared & set(protocol.classes or shared)) for shared in counts)
    targets = tuple(Subset(str(k), first=k) for k in first if k <= most)
    require(bool(targets), f"Source and target share {most} classes, none of {list(first)}: ask for fewer.")
    return dataclasses.replace(protocol, targets=targets)


def check(named: str | Path, root: Path | None = None, tasks: str | None = None) -> tuple[list[str], list[str]]:
    """What the data of a protocol's tasks is, and what is wrong with it, a sentence each."""
    domains, wrong = inspect(narrowed(read_protocol(named), tasks, None, None), root)
    found = [
        f"Domain {d.name} ({d.file.path}): {len(d.classes)} samples of {len(d.counts)} classes."
        for d in domains.values()
    ]
    return found, wrong


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
    """Run what `out` has not got yet; returns a row per job, with the columns of :meth:`Database.table`.

    With the `address` of a Ray cluster its machines run it, else processes on this one. With `with_points`
    finished runs must have points, which `work` must then give.
    """
    with Database(out) as database:
        database.add_datasets(study.protocol.name, study.datasets)
        if retry_failed:
            database.forget_failed(job.key for job in study.jobs)
        done = database.outcomes(with_points)
        todo = [job for job in study.jobs if job.key not in done]
        labels = {data.digest: data.labels for data in study.datasets}
        asked_for = {job.data: (job.images, job.pair) for job in todo}
        warm(((seen, pair) for seen, pair in asked_for.values() if seen is not None), show)
        try:
            # another benchmark may have been faster by the time a job's turn comes
            missing = (job for job in todo if not database.has(job.key, with_points))
            if address is None:
                on_gpu = any(job.images is not None and job.images.spec.device == "cuda" for job in todo)
                workers = workers or int(on_gpu)  # runs would fight for the memory of the one device
                begin: Begin = partial(run_local, missing, workers, work)
            else:
                begin = partial(run_on_ray, missing, address, workers, work)
            _record(database, begin, labels, len(todo), show)
        except (KeyboardInterrupt, SystemExit):
            left = len({job.key for job in todo} - database.outcomes(with_points).keys())
            print(f"Stopped with {left} runs to go: the same command goes on from {out}.", file=sys.stderr)
            raise
        asked = pd.DataFrame([{name: getattr(job, name) for name in _NAMED} for job in study.jobs])
        found = database.table(job.key for job in study.jobs)
        return asked.merge(found.drop(columns=[*_NAMED[1:]]), on="key", how="left")


def count_failed(rows: pd.DataFrame) -> int:
    """How many runs failed."""
    return int((rows["outcome"] == "failed").sum())


def _record(database: Database, begin: Begin, labels: dict[str, Any], total: int, show: bool) -> None:
    """Keep what comes of the runs, and show how far they are, also within a run where that is known."""
    with bar("Benchmark", total, show) as progress:
        done, going, last = 0, dict[str, tuple[str, float]](), ""

        def shown() -> None:
            words = [f"{name} {share:.0%}" for name, share in list(going.values())[:_MOST_NAMED]]
            said = " · ".join(filter(None, (last, ", ".join(words))))
            progress.update(done + sum(share for _, share in going.values()), said)

        def told(job: Job, share: float) -> None:
            going[job.key] = f"{job.label} {job.task}", share
            shown()

        for job, outcome in begin(told=told):
            database.record(job, outcome, labels[job.data])
            going.pop(job.key, None)
            failed = "failed" if isinstance(outcome, Failure) else ""
            done, last = done + 1, " ".join(filter(None, (job.label, job.task, job.variant, failed)))
            shown()


def study_tables(study: Study, rows: pd.DataFrame) -> list[Table]:
    """The tables of a study that has been run."""
    protocol = study.protocol
    return tables(rows, protocol.title, protocol.selection, protocol.paper, study.notes)


def page(study: Study, made: Sequence[Table]) -> str:
    """A page of results in Markdown: how to get them again, then the tables."""
    command, what = made_by(study)
    return f"# {study.protocol.title}\n\n    {command}\n\n{what}.\n\n{markdown(made)}"


def made_by(study: Study) -> tuple[str, str]:
    """The command that was typed, and the versions (and commit) it was run with."""
    what = [f"{name} {version}" for name, version in study.jobs[0].spec["versions"].items()]
    where = commit()
    what += [f"commit {where}"] if where else []
    return shlex.join(["ba3us", *sys.argv[1:]]), ", ".join(what)


def _notes(protocol: Protocol, names: list[str], backbones: set[str | None], seen: Sight | None) -> list[str]:
    made = ", ".join(sorted(name for name in backbones if name))
    meant = (
        f" (the protocol's backbone is {protocol.backbone})" if protocol.backbone not in (None, made) else ""
    )
    said = [f"Features: frozen, {made or 'as in the files'}{meant}."]
    if seen is not None:
        how = "" if seen.spec.precision == "float32" else f", {seen.spec.precision}"
        said = [f"Images: {seen.spec.backbone}, trained: {seen.spec.train}, views: {seen.spec.views}{how}."]
    if tuned := tuned_with_labels(protocol, names):
        said.append(f"Published settings of single tasks tuned with target labels: {', '.join(tuned)}.")
    return said


def commit() -> str | None:
    """The commit of the package, where it lies in a repository."""
    call = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
