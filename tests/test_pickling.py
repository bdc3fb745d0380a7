"""Exceptions and results survive pickle, copies, joblib files and the way back from a worker process."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch

import ba3us
from arrays_toys import FAST, clouds
from ba3us import PartialAdapter, methods
from ba3us.auto.candidates import FAST as CANDIDATES
from ba3us.auto.candidates import CandidateResult
from ba3us.bench.jobs import Outcome
from ba3us.data import Target
from ba3us.errors import UserError
from ba3us.methods.base import Step
from ba3us.run.spec import Spec
from ba3us.training import Execution
from ba3us.training.evaluation import RULES
from ba3us.training.monitoring import DivergedError
from toys import blobs, trainer

X, Y, XT, _ = clouds()


def classes() -> list[type]:
    """All classes that are defined in the package."""
    names = [m.name for m in pkgutil.walk_packages(ba3us.__path__, "ba3us.") if "__main__" not in m.name]
    modules = [importlib.import_module(name) for name in names]
    return [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]


CLASSES = classes()
EXCEPTIONS = [c for c in CLASSES if issubclass(c, BaseException)]


def exception(kind: type[BaseException]) -> BaseException:
    if issubclass(kind, DivergedError):
        error = kind("The loss", math.inf, Step(3, 10, "adapt"))
        error.state_file = Path("run/state.ckpt.diverged")
        return error
    return kind("A sentence.")


def joblib_round_trip(value: Any) -> Any:
    file = BytesIO()
    joblib.dump(value, file)
    file.seek(0)
    return joblib.load(file)


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
    "joblib": joblib_round_trip,
}


def equal(a: Any, b: Any) -> bool:
    """Whether two objects hold the same, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, pd.DataFrame):
        return a.equals(b)
    if isinstance(a, torch.nn.Module):
        return equal(dict(a.state_dict()), dict(b.state_dict()))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, BaseException):
        return (str(a), vars(a)) == (str(b), vars(b))
    if type(a).__module__.startswith("ba3us.") and hasattr(a, "__dict__"):
        return equal(vars(a), vars(b))
    return bool(a == b) or type(a).__module__.startswith("functools") or a != a


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One of everything that the package returns, or is configured with."""
    adapter = PartialAdapter("e-dann", assess=True, **FAST).fit(X, Y, XT)
    run = adapter.run_
    trained = trainer().fit(*blobs()[:2])
    source, target, _ = blobs()
    evaluations = pd.DataFrame({"step": [0, 1]})
    predictions, means = np.zeros((2, 3), np.int16), np.zeros((2, 4), np.float32)
    return {
        "PartialAdapter": adapter,
        "Run": run,
        "Model": run.model,
        "Verdict": run.verdict,
        "Calibration": run.calibration,
        "Spec": Spec(method="e-dann", seed=3),
        "Execution": Execution(seed=3, checkpoint=Path("state.ckpt")),
        "Evaluation": trained.evaluations[0],
        "Result": trained,
        "prepared rule": RULES["neighbours"].prepared(source, target, True),
        "Target": Target(XT),
        "CandidateResult": CandidateResult(CANDIDATES[0], np.eye(3), "it diverged"),
        "Outcome": Outcome(evaluations, evaluations, predictions, means, {"entropy": 1}, 4, 1.0, 0.5, {}),
        **{f"rule {name}": rule for name, rule in RULES.items()},
        **{f"options {entry.name}": entry.options() for entry in methods.entries()},
    }


@pytest.mark.parametrize("by", COPIES)
@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_exceptions_are_copied_whole(kind, by):
    error = exception(kind)
    assert equal(COPIES[by](error), error)


@pytest.mark.parametrize("by", COPIES)
def test_results_are_copied_whole(results, by):
    assert results["Verdict"] is not None
    different = [name for name, value in results.items() if not equal(COPIES[by](value), value)]
    assert different == []


def test_every_dataclass_is_found_by_its_name():
    kinds = [c for c in CLASSES if dataclasses.is_dataclass(c)]
    assert len(kinds) > 50
    assert [c for c in kinds if pickle.loads(pickle.dumps(c)) is not c] == []


# --- other processes ---


def raised(kind: type[BaseException]) -> None:
    raise exception(kind)


def returned(value: Any) -> Any:
    return value


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, get_context("spawn")) as workers:
        yield workers


def test_an_error_in_a_worker_is_that_error_and_the_pool_works_on(pool):
    for kind in EXCEPTIONS:
        with pytest.raises(kind) as caught:
            pool.submit(raised, kind).result(120)
        assert equal(caught.value, exception(kind))
    assert pool.submit(returned, 3).result(120) == 3


def test_results_come_back_from_a_worker(pool, results):
    for name, value in results.items():
        assert equal(pool.submit(returned, value).result(120), value), name


def test_a_run_that_diverges_in_a_worker_says_so_and_names_no_flag(pool):
    error = pool.submit(diverge).exception(120)
    assert isinstance(error, DivergedError) and isinstance(error, UserError)
    assert "on_nan='retry'" in str(error) and "--" not in str(error)


def diverge() -> None:
    trainer(learning_rate=1e30).fit(*blobs()[:2])


def test_joblib_passes_a_diverged_run_on():
    with pytest.raises(DivergedError, match="became inf at step 3 of phase 'adapt'"):
        joblib.Parallel(n_jobs=2)(joblib.delayed(raised)(DivergedError) for _ in range(2))
