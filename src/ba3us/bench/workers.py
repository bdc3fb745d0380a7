"""Many runs side by side: in processes of this machine, or on the machines of a Ray cluster.

Only the process that calls this records results. On a cluster every run is a task of one core. Feature arrays
are sent along; images, and a file of weights, must have the same path on every machine.
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
from ba3us.bench.jobs import THREADS, Job, Outcome, execute, read_samples
from ba3us.data.machine import cpu_count
from ba3us.errors import UserError, optional_import

Work = Callable[[Job], Outcome]
ProgressReport = Callable[[Job, float], None]
_END_TIMEOUT = 5  # seconds for a worker to end
_RETRIES = 3  # of a cluster's run whose process or machine died
_ANSWER_TIMEOUT = 10.0  # seconds for a cluster's first answer
_QUEUED_PER_CORE = 2  # runs handed to a cluster, so that no core waits for this process
_SPAWN = get_context("spawn")


def run_local(
    jobs: Iterable[Job], workers: int = 0, work: Work = execute, on_progress: ProgressReport | None = None
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Carry jobs out in processes of one thread each, and yield each job with its result as it ends.

    The pool is hand-made because a worker that dies must fail its own run only: ``ProcessPoolExecutor`` and
    loky give up the whole pool then.

    Parameters
    ----------
    jobs : iterable of Job
        Taken one by one, when a worker is free.
    workers : int
        Processes; 0: one per core.
    work : callable
        What a worker does with a job; it must be importable.
    on_progress : callable
        Called with a running job and the proportion of it that is done.
    """
    waiting, busy, idle = iter(jobs), dict[Any, _Worker](), list[_Worker]()
    limit = workers or cpu_count()  # not torch's threads, of which a run has one
    try:
        while True:
            while len(busy) < limit and (job := next(waiting, None)) is not None:
                worker = idle.pop() if idle else _Worker(work)
                busy[worker.pipe] = worker
                worker.send(job)
            if not busy:
                return
            for pipe in connection.wait(list(busy)):
                worker, outcome = busy[pipe], busy[pipe].receive()
                if isinstance(outcome, float):
                    if on_progress is not None:
                        on_progress(worker.job, outcome)
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
        self.pipe, other_end = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(other_end, work), daemon=True)
        self.process.start()
        other_end.close()
        self.alive = True

    def send(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # receive() notices that a worker has died
            self.pipe.send(job)

    def receive(self) -> Outcome | Failure | float:
        """The result of the job, or the proportion of it that is done so far."""
        with suppress(EOFError, OSError):
            return self.pipe.recv()
        self.alive = False
        self.process.join()
        code = self.process.exitcode or 0
        return Failure(f"the process ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})")

    def end(self) -> None:
        self.process.terminate()
        self.process.join(_END_TIMEOUT)
        self.process.kill()  # it may ignore the signal
        self.process.join()


def _serve(pipe: Any, work: Work) -> None:
    serve_parent()
    torch.set_num_threads(THREADS)
    with suppress(EOFError, OSError):  # the main process has ended
        while True:
            pipe.send(attempt(work, dataclasses.replace(pipe.recv(), on_progress=pipe.send)))


def attempt(work: Work, job: Job) -> Outcome | Failure:
    """The result of a run, or the first line of its error."""
    try:
        return work(job)
    except Exception as error:  # a run that diverges or runs out of memory is a row of the results as well
        lines = str(error).strip().splitlines()
        return Failure(lines[0] if lines else type(error).__name__)


def run_on_ray(
    jobs: Iterable[Job],
    address: str = "auto",
    workers: int = 0,
    work: Work = execute,
    on_progress: ProgressReport | None = None,
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Carry jobs out on a cluster, and yield each job with its result as it ends.

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
    on_progress : callable
        Not called: tasks report nothing before they end.
    """
    ray: Any = optional_import("ray", "ray")
    waiting, busy, arrays = iter(jobs), dict[Any, Job](), dict[File, Any]()
    with _connected(ray, address):
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run_task)
        try:
            while True:
                limit = workers or _QUEUED_PER_CORE * int(ray.cluster_resources().get("CPU", 1))
                while len(busy) < limit and (job := next(waiting, None)) is not None:
                    busy[_submit(ray, task, work, job, arrays)] = job
                if not busy:
                    return
                for ended in ray.wait(list(busy))[0]:
                    try:
                        outcome = ray.get(ended)
                    except ray.exceptions.RayError as error:
                        outcome = Failure(f"the process ended, {_RETRIES + 1} times ({type(error).__name__})")
                    yield busy.pop(ended), outcome
        finally:
            for reference in busy:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to the cluster, unless the caller is connected already."""
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


def _submit(ray: Any, task: Any, work: Work, job: Job, arrays: dict[File, Any]) -> Any:
    """Start a task and return the reference to its result; a feature file is sent once for all runs."""
    versions = job.spec["versions"]
    if job.images is not None:
        on_gpu = int(job.images.spec.device == "cuda")
        return task.options(num_gpus=on_gpu).remote(work, job, versions)
    for file in (job.pair.source, job.pair.target):
        if file not in arrays:
            arrays[file] = ray.put(read_samples(file))
    return task.remote(work, job, versions, arrays[job.pair.source], arrays[job.pair.target])


def _run_task(work: Work, job: Job, versions: dict[str, str], *arrays: Any) -> Outcome | Failure:
    """In a task: carry a job out on the arrays that came with it."""
    torch.set_num_threads(THREADS)
    job = dataclasses.replace(job, pair=dataclasses.replace(job.pair, arrays=arrays))
    if (installed := job.spec["versions"]) != versions:
        return Failure(f"A machine of the cluster has {installed}, this one {versions}: use the same.")
    return attempt(work, job)
