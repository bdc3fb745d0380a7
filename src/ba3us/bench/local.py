"""Many runs on this machine: processes with one thread each, none of which can take the others along."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import connection, get_context
from typing import Any

import torch

from ba3us.bench.database import Failure
from ba3us.bench.execute import Outcome, execute
from ba3us.bench.jobs import THREADS, Job
from ba3us.data.cache import cores
from ba3us.engine.workers import serve_parent

Work = Callable[[Job], Outcome]
Told = Callable[[Job, float], None]
_PATIENCE = 5  # seconds that a worker is given to end
_SPAWN = get_context("spawn")


def run(
    jobs: Iterable[Job], workers: int = 0, work: Work = execute, told: Told | None = None
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
    most = workers or cores()  # not torch's threads, of which a run has one
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
