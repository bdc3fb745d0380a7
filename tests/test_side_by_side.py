"""Several at once: threads, processes, joblib and forks have the bits that one after the other has."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from sklearn.model_selection import GridSearchCV

from arrays_toys import FAST, clouds
from ba3us import PartialAdapter
from ba3us.training.checkpoints import seeded

X, Y, XT, YT = clouds()
ASKED = [("auto", 0), ("ba3us", 1)]


def fitted(method: str, seed: int) -> PartialAdapter:
    options = FAST["method_params"] if method == "ba3us" else {}
    return PartialAdapter(method, steps=12, n_threads=1, random_state=seed, method_params=options).fit(X, Y, XT)


def probabilities(asked: tuple[str, int]) -> bytes:
    return fitted(*asked).predict_proba(XT).tobytes()


@pytest.fixture(scope="module")
def alone() -> list[bytes]:
    return [probabilities(asked) for asked in ASKED]


def test_threads(alone):
    with ThreadPoolExecutor(len(ASKED)) as pool:
        assert list(pool.map(probabilities, ASKED)) == alone


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_joblib(alone, backend):
    assert Parallel(n_jobs=2, backend=backend)(delayed(probabilities)(asked) for asked in ASKED) == alone


def forks_after_work_on_many_threads() -> None:
    """A fork inherits torch's wish for many threads, but not the threads: waiting for them would never end."""
    alone = [probabilities(asked) for asked in ASKED]
    torch.set_num_threads(2)
    torch.randn(4000, 1000).softmax(dim=1)  # now there is a team of threads
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(probabilities, ASKED)) == alone


def a_fork_while_another_thread_fits() -> None:
    """The lock that runs take turns with is not inherited as it happens to be."""
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with seeded(0):
            inside.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)
    try:
        child = multiprocessing.get_context("fork").Process(target=fitted, args=("source-only", 0))
        child.start()
        child.join(60)
        stuck = child.is_alive()
        child.kill()
    finally:
        done.set()
        holder.join()
    assert not stuck and child.exitcode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("work", [forks_after_work_on_many_threads, a_fork_while_another_thread_fits])
def test_forks(work):
    """In a process of its own: MKL does not survive a fork where very many threads have come and gone."""
    folder = str(Path(__file__).parent)
    paths = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, __file__, work.__name__],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr


def test_many_threads_predict_with_one_model():
    """SAFN has batch norm and dropout: a model that were put to training by another thread would show."""
    model = fitted("safn", 0)
    many = np.repeat(XT, 30, axis=0)
    expected = model.predict_proba(many)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.predict_proba(many), range(12)))
    assert all(np.array_equal(one, expected) for one in found)


def test_a_model_is_at_rest_in_evaluation_mode():
    """So that threads that predict have nothing to switch."""
    for method in ("safn", "auto"):
        assert not any(part.training for part in fitted(method, 0).run_.model.module.modules())


def test_a_fit_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fitted("ba3us", 0)
    assert torch.equal(torch.rand(3), expected)


def test_grid_search_with_two_jobs(alone):
    grid = {"learning_rate": [0.001, 0.01]}
    found = [
        GridSearchCV(PartialAdapter("ba3us", **FAST), grid, cv=2, n_jobs=jobs).fit(X, Y, Xt=XT)
        for jobs in (None, 2)
    ]
    names = [f"split{fold}_test_score" for fold in range(2)]
    assert all(np.array_equal(found[0].cv_results_[n], found[1].cv_results_[n]) for n in names)
    assert np.array_equal(found[0].predict_proba(XT), found[1].predict_proba(XT))


if __name__ == "__main__":
    {each.__name__: each for each in (forks_after_work_on_many_threads, a_fork_while_another_thread_fits)}[
        sys.argv[1]
    ]()
