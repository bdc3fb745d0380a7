"""The members of an automatic choice: which systems are tried, and what each says of the target."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ba3us import __version__
from ba3us.data.machine import cpu_count
from ba3us.data.writing import new_file
from ba3us.errors import UserError
from ba3us.run import opening
from ba3us.run.arrays import OpenedArrays
from ba3us.run.spec import Spec, place
from ba3us.run.train import train_one
from ba3us.training.checkpoints import seeded

# --- workers ----------------------------------------------------------------------------------------------
# Processes that work for this one, and end with it however it ends.


def serve_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it is gone, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()


@contextmanager
def main_unseen() -> Iterator[None]:
    """Processes that are started meanwhile don't import the caller's script, which may have no `main` guard."""
    main = sys.modules["__main__"]
    names = ("__spec__", "__file__")
    before = {name: getattr(main, name) for name in names if hasattr(main, name)}
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        vars(main).update(before)


def end_workers(pool: ProcessPoolExecutor, at_once: bool) -> None:
    """Let the processes of a pool go, without what they are doing if `at_once`."""
    for process in list((pool._processes or {}).values()) if at_once else ():
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


# --- portfolio --------------------------------------------------------------------------------------------
# The members of an automatic choice: which systems are tried, and what each says of the target.


THREADS = 1  # of a member, so that it is the same whether members run one by one or side by side
_SHIPPED = 1 << 30  # bytes: samples beyond are not sent to other processes
_SMALL = {"discriminator_hidden": 256}


@dataclass(frozen=True)
class Candidate:
    """A system that is tried: its name in the leaderboard, the method, its options and which seed."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def spec(self, spec: Spec) -> Spec:
        """What it is to do, where `spec` asks for an automatic choice."""
        config = spec.method_options()
        options = {"steps": config.steps, "batch_size": config.batch_size} | self.options
        longer = options.pop("longer", 1)
        return Spec(
            method=self.method,
            method_params=options | {"steps": longer * options["steps"]},
            selection="last",
            standardize=spec.standardize,
            seed=spec.seed + self.seed,
            n_threads=THREADS,
            device=spec.device,
            on_nan=spec.on_nan,
        )


def _seeds(count: int, name: str, method: str, **options: Any) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(f"{name} {seed + 1}" if seed else name, method, options, seed) for seed in range(count)
    )


# Robust ones do not sharpen the target's predictions, so they can't make early mistakes firm.
FAST = _seeds(1, "SAFN", "safn")
ROBUST = (*_seeds(2, "SAFN", "safn"), *_seeds(2, "HAFN", "hafn"))
# These sharpen; they are tried where source-only already follows the target's neighbourhoods.
SHARPENING = (
    *_seeds(2, "E-DANN", "e-dann", gradual_weights=True, **_SMALL),
    *_seeds(2, "BA³US, gradual", "ba3us-gradual", **_SMALL),
    *_seeds(1, "BA³US", "ba3us", learning_rate=0.001, longer=2, **_SMALL),
    *_seeds(2, "SAFN + ENT", "safn+ent"),
    *_seeds(2, "JUMBOT", "jumbot"),
    *_seeds(2, "SHOT", "shot"),
)


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """What became of a member: class probabilities of the target's rows, or why there are none."""

    candidate: Candidate
    probabilities: np.ndarray | None
    seconds: float
    failure: str = ""


def train_candidates(
    members: Sequence[Candidate], spec: Spec, opened: OpenedArrays, kept: Path | None, until: float
) -> Iterator[CandidateResult]:
    """Train members, side by side where there are cores; none is begun after `until` (monotonic seconds).

    Those that have ended lie in the folder `kept`, and are not trained again.
    """
    with _pool(members, spec, opened) as pool:
        if pool is None:
            found = (_train_or_read(candidate, spec, kept, opened, until) for candidate in members)
        else:
            with main_unseen():
                jobs = [pool.submit(_in_worker, candidate, spec, kept, until) for candidate in members]
            found = (
                _answer(job, candidate, spec, kept, opened, until) for job, candidate in zip(jobs, members)
            )
        yield from (result for result in found if result is not None)


def _answer(job: Future[CandidateResult | None], candidate: Candidate, *given: Any) -> CandidateResult | None:
    """What a worker says; if it has died (killed for its memory, say), the member is trained here."""
    try:
        return job.result()
    except BrokenProcessPool:
        return _train_or_read(candidate, *given)


def _train_or_read(
    candidate: Candidate, spec: Spec, kept: Path | None, opened: OpenedArrays, until: float
) -> CandidateResult | None:
    """Train a candidate, or read the result that an interrupted run has left."""
    asked = candidate.spec(spec)
    file = None if kept is None else kept / f"{_digest(asked, opened)}.npz"
    if file is not None and (found := _read(file, candidate)) is not None:
        return found
    if time.monotonic() > until:
        return None
    start = time.perf_counter()
    try:
        with seeded(asked.seed, THREADS):
            run, target = train_one(asked, opened)
            result = CandidateResult(candidate, run.probabilities(target), time.perf_counter() - start)
    except UserError as error:
        return CandidateResult(candidate, None, time.perf_counter() - start, str(error))
    if file is not None:
        with new_file(file) as part, part.open("wb") as stream:
            np.savez(stream, probabilities=result.probabilities, seconds=result.seconds)  # type: ignore[arg-type]
    return result


def _read(file: Path, candidate: Candidate) -> CandidateResult | None:
    """What was kept; a file that is damaged is as good as none."""
    try:
        with np.load(file, allow_pickle=False) as found:
            return CandidateResult(candidate, found["probabilities"], float(found["seconds"]))
    except Exception:
        return None


def _digest(spec: Spec, opened: OpenedArrays) -> str:
    hasher = hashlib.blake2b(
        repr(opening.digest(spec, opened, (__version__, torch.__version__))).encode(), digest_size=16
    )
    return hasher.hexdigest()


# --- side by side -------------------------------------------------------------------------------------------

_OPENED: OpenedArrays | None = None  # of a worker process


@contextmanager
def _pool(
    members: Sequence[Candidate], spec: Spec, opened: OpenedArrays
) -> Iterator[ProcessPoolExecutor | None]:
    """Processes, if there are members enough, cores, and samples that can be sent."""
    workers = min(len(members), cpu_count())
    size = opened.source.nbytes + opened.target.nbytes
    alone = workers < 2 or current_process().daemon  # a worker of a benchmark has no workers of its own
    if alone or len(members) < 3 or size > _SHIPPED or place(spec) != "cpu":
        yield None
        return
    plain = dataclasses.replace(opened, paths=None, notes=[], skipped={})
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _open, (plain,))
    ended = False
    try:
        yield pool
        ended = True
    finally:
        end_workers(pool, at_once=not ended)


def _open(opened: OpenedArrays) -> None:
    global _OPENED
    _OPENED = opened
    serve_parent()
    torch.set_num_threads(THREADS)


def _in_worker(candidate: Candidate, spec: Spec, kept: Path | None, until: float) -> CandidateResult | None:
    assert _OPENED is not None
    return _train_or_read(candidate, spec, kept, _OPENED, until)
