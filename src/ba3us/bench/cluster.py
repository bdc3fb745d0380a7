"""Many runs on the machines of a Ray cluster: every run is a task of one core, and only this process records.

Feature files are shipped; images, and a file of weights, must lie under the same path on every machine.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import torch

from ba3us.bench.database import Failure
from ba3us.bench.domains import File
from ba3us.bench.execute import Outcome, execute, samples
from ba3us.bench.jobs import THREADS, Job
from ba3us.bench.local import Told, Work, tried
from ba3us.errors import UserError, optional_import, require

_RETRIES = 3  # of a run whose process or machine died
_PATIENCE = 10.0  # seconds for a first answer
_AHEAD = 2  # runs handed out per core, so that none waits for this process


def run(
    jobs: Iterable[Job],
    address: str = "auto",
    workers: int = 0,
    work: Work = execute,
    told: Told | None = None,
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Carry jobs out on a cluster and give each with what became of it, as they end.

    Parameters
    ----------
    jobs : iterable of Job
        Taken one by one, when a core is about to be free.
    address : str
        Of the cluster's head; ``auto``: the cluster that this machine belongs to.
    workers : int
        Runs at the same time; 0: as many as the cluster has cores.
    work : callable
        What a task does with a job; every machine must be able to import it.
    told : callable
        As of the local engine; nothing is heard of tasks before they end.
    """
    ray: Any = optional_import("ray", "ray")
    waiting, busy, shipped = iter(jobs), dict[Any, Job](), dict[File, Any]()
    with _connected(ray, address):
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_carried)
        try:
            while True:
                most = workers or _AHEAD * int(ray.cluster_resources().get("CPU", 1))
                while len(busy) < most and (job := next(waiting, None)) is not None:
                    busy[_handed(ray, task, work, job, shipped)] = job
                if not busy:
                    return
                for ended in ray.wait(list(busy))[0]:
                    yield busy.pop(ended), _taken(ray, ended)
        finally:
            for reference in busy:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Be a part of the cluster while this lasts; a caller who is one already stays one."""
    if ray.is_initialized():
        yield
        return
    try:
        if address != "auto":  # Ray itself would try for minutes
            place = urlsplit(address if "//" in address else f"//{address}")
            socket.create_connection((place.hostname or "", place.port or 0), _PATIENCE).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({str(error).splitlines()[0][:120]}): start one with "
            "ray start --head, or give its address (--address)."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _handed(ray: Any, task: Any, work: Work, job: Job, shipped: dict[File, Any]) -> Any:
    """A reference to what will become of a job; samples of a feature file are shipped once for all runs."""
    versions = job.spec["versions"]
    if job.images is not None:
        on_gpu = int(job.images.spec.device == "cuda")
        return task.options(num_gpus=on_gpu).remote(work, job, versions)
    for file in (job.pair.source, job.pair.target):
        if file not in shipped:
            shipped[file] = ray.put(samples(file))
    return task.remote(work, job, versions, shipped[job.pair.source], shipped[job.pair.target])


def _carried(work: Work, job: Job, versions: dict[str, str], *both: Any) -> Outcome | Failure:
    """In a task: carry a job out on samples that came along."""
    torch.set_num_threads(THREADS)
    job = dataclasses.replace(job, pair=dataclasses.replace(job.pair, shipped=both))
    return tried(_checked, work, job, versions)


def _checked(work: Work, job: Job, versions: dict[str, str]) -> Outcome:
    here = job.spec["versions"]
    require(here == versions, f"A machine of the cluster has {here}, this one {versions}: use the same.")
    return work(job)


def _taken(ray: Any, reference: Any) -> Outcome | Failure:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return Failure(f"the process ended, {_RETRIES + 1} times ({type(error).__name__})")
