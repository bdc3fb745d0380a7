"""Many runs on the machines of a Ray cluster: every run is a task of one core, and only this process records.

Feature files are shipped; images, and a file of weights, must lie under the same path on every machine.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from typing import Any
from urllib.parse import urlsplit

import torch

from ba3us.auto.candidates import serve_parent
from ba3us.bench.database import Failure
from ba3us.bench.domains import File
from ba3us.bench.jobs import THREADS, Job, Outcome, execute, samples
from ba3us.data.machine import cpu_count
from ba3us.errors import UserError, optional_import, require

# --- local ------------------------------------------------------------------------------------------------
# Many runs on this machine: processes with one thread each, none of which can take the others along.


Work = Callable[[Job], Outcome]
RunReport = Callable[[Job, float], None]
_PATIENCE = 5  # seconds that a worker is given to end
_SPAWN = get_context("spawn")


def run_local(
    jobs: Iterable[Job], workers: int = 0, work: Work = execute, told: RunReport | None = None
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Carry jobs out side by side and give each with what became of it, as they end.

    Parameters
    ----------
    jobs : iterable of Job
        Taken one by one, when a worker is free.
    workers : int
        Processes; 0: one per core.
    work : callable
        What a worker does with a job; it must be importable.
    told : callable
        Hears of a job that has not ended yet which share of it is done.
    """
    waiting, busy, idle = iter(jobs), dict[Any, _Worker](), list[_Worker]()
    most = workers or cpu_count()  # not torch's threads, of which a run has one
    try:
        while True:
            while len(busy) < most and (job := next(waiting, None)) is not None:
                worker = idle.pop() if idle else _Worker(work)
                busy[worker.pipe] = worker
                worker.give(job)
            if not busy:
                return
            for pipe in connection.wait(list(busy)):
                worker, outcome = busy[pipe], busy[pipe].take()
                if isinstance(outcome, float):
                    if told is not None:
                        told(worker.job, outcome)
                    continue
                del busy[pipe]
                if worker.alive:
                    idle.append(worker)
                yield worker.job, outcome
    finally:
        for worker in [*busy.values(), *idle]:
            worker.end()


class _Worker:
    """A process that carries out one job after the other."""

    job: Job

    def __init__(self, work: Work) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.alive = True

    def give(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # a worker that died is found out when its answer is taken
            self.pipe.send(job)

    def take(self) -> Outcome | Failure | float:
        """What became of the job, or the share of it that is done so far."""
        with suppress(EOFError, OSError):
            return self.pipe.recv()
        self.alive = False
        self.process.join()
        code = self.process.exitcode or 0
        return Failure(f"the process ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def end(self) -> None:
        self.process.terminate()
        self.process.join(_PATIENCE)
        self.process.kill()  # it may have been busy with something that does not listen
        self.process.join()


def _serve(pipe: Any, work: Work) -> None:
    serve_parent()
    torch.set_num_threads(THREADS)
    with suppress(EOFError, OSError):  # the first process is gone
        while True:
            pipe.send(tried(work, dataclasses.replace(pipe.recv(), tell=pipe.send)))


def tried(work: Callable[..., Outcome], *given: Any) -> Outcome | Failure:
    """What comes of a work, also if nothing does."""
    try:
        return work(*given)
    except Exception as error:  # a run that diverges or does not fit is a row as well
        words = str(error).strip().splitlines()
        return Failure(words[0] if words else type(error).__name__)


# --- cluster ----------------------------------------------------------------------------------------------
# Many runs on the machines of a Ray cluster: every run is a task of one core, and only this process records.
#
# Feature files are shipped; images, and a file of weights, must lie under the same path on every machine.


_RETRIES = 3  # of a run whose process or machine died
_ANSWER_TIMEOUT = 10.0  # seconds for a first answer
_AHEAD = 2  # runs handed out per core, so that none waits for this process


def run_on_ray(
    jobs: Iterable[Job],
    address: str = "auto",
    workers: int = 0,
    work: Work = execute,
    told: RunReport | None = None,
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
            socket.create_connection((place.hostname or "", place.port or 0), _ANSWER_TIMEOUT).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({str(error).splitlines()[0][:120]}): start one with "
            "ray start --head, or give its address (`address`)."
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
