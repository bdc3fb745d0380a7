"""Candidates of the automatic choice: which methods are tried, and their training, side by side if possible."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing import current_process, get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

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

THREADS = 1  # of a candidate, so that results are the same one by one and side by side
_MAX_SENT = 1 << 30  # bytes of samples that are sent to other processes


@dataclass(frozen=True)
class Candidate:
    """A method that is tried: its name in the leaderboard, its options, and an offset of the seed."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def spec(self, spec: Spec) -> Spec:
        """The candidate's own spec, given the `spec` of the automatic choice."""
        config = spec.method_options()
        options = {"steps": config.steps, "batch_size": config.batch_size} | self.options
        options["steps"] *= options.pop("longer", 1)
        return Spec(
            method=self.method,
            method_params=options,
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


# Robust methods do not minimise entropy on the target, so they can't reinforce early mistakes.
FAST = _seeds(1, "SAFN", "safn")
ROBUST = (*_seeds(2, "SAFN", "safn"), *_seeds(2, "HAFN", "hafn"))
# These do. They are tried where source-only's classes already agree among neighbours.
_SMALL = {"discriminator_hidden": 256}
SHARPENING = (
    *_seeds(2, "E-DANN", "e-dann", gradual_weights=True, **_SMALL),
    *_seeds(2, "BA³US, gradual", "ba3us-gradual", **_SMALL),
    *_seeds(1, "BA³US", "ba3us", learning_rate=0.001, longer=2, **_SMALL),
    *_seeds(2, "SAFN + ENT", "safn+ent"),
    *_seeds(2, "JUMBOT", "jumbot"),
    *_seeds(2, "SHOT", "shot"),
)


class CandidateResult(NamedTuple):
    """A candidate's class probabilities for the target samples, or why its training failed."""

    candidate: Candidate
    probabilities: np.ndarray | None
    failure: str = ""


def train_candidates(
    candidates: Sequence[Candidate], spec: Spec, opened: OpenedArrays, cache: Path | None, until: float
) -> Iterator[CandidateResult]:
    """Train candidates, side by side if there are cores, and yield their results in order.

    None is started after `until`, a time of ``time.monotonic``. Results are stored in the folder `cache`, and
    read from there after an interruption.
    """
    with _process_pool(candidates, spec, opened) as pool:
        futures = []
        if pool is not None:
            with _hidden_main():
                futures = [pool.submit(_train_in_worker, each, spec, cache, until) for each in candidates]
        for candidate, future in zip_longest(candidates, futures):
            try:
                result = future.result() if future else _train_or_read(candidate, spec, cache, opened, until)
            except BrokenProcessPool:  # a worker was killed, for its memory, say: train here
                result = _train_or_read(candidate, spec, cache, opened, until)
            if result is not None:
                yield result


def _train_or_read(
    candidate: Candidate, spec: Spec, cache: Path | None, opened: OpenedArrays, until: float
) -> CandidateResult | None:
    """Train a candidate, or read the result that an interrupted run has stored; None if it is too late."""
    own_spec, file = candidate.spec(spec), None
    if cache is not None:
        file = cache / f"{opening.digest(own_spec, opened, (__version__, torch.__version__))}.npz"
        try:
            with np.load(file, allow_pickle=False) as stored:
                return CandidateResult(candidate, stored["probabilities"])
        except Exception:
            pass  # not there, or damaged: train
    if time.monotonic() > until:
        return None
    try:
        with seeded(own_spec.seed, THREADS):
            run, target = train_one(own_spec, opened)
            probabilities = run.probabilities(target)
    except UserError as error:
        return CandidateResult(candidate, None, str(error))
    if file is not None:
        with new_file(file) as part, part.open("wb") as stream:
            np.savez(stream, probabilities=probabilities)  # type: ignore[arg-type]
    return CandidateResult(candidate, probabilities)


# --- worker processes ---------------------------------------------------------------------------------------

_OPENED: OpenedArrays | None = None  # the samples, in a worker process


@contextmanager
def _process_pool(
    candidates: Sequence[Candidate], spec: Spec, opened: OpenedArrays
) -> Iterator[ProcessPoolExecutor | None]:
    """Start worker processes if they pay; None if not. An error terminates them."""
    workers = min(len(candidates), cpu_count())
    alone = workers < 2 or current_process().daemon  # a benchmark's worker can't have workers of its own
    size = opened.source.nbytes + opened.target.nbytes
    if alone or len(candidates) < 3 or size > _MAX_SENT or place(spec) != "cpu":
        yield None
        return
    samples = dataclasses.replace(opened, paths=None, notes=[], skipped={})
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (samples,))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep processes that start meanwhile from importing the caller's script: it may have no `main` guard."""
    main = sys.modules["__main__"]
    before = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        vars(main).update(before)


def _start_worker(opened: OpenedArrays) -> None:
    global _OPENED
    _OPENED = opened
    serve_parent()
    torch.set_num_threads(THREADS)


def serve_parent() -> None:
    """In a worker process: leave Ctrl-C to the parent, and end when the parent ends, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _train_in_worker(
    candidate: Candidate, spec: Spec, cache: Path | None, until: float
) -> CandidateResult | None:
    assert _OPENED is not None
    return _train_or_read(candidate, spec, cache, _OPENED, until)
