"""Some rows of a run's domains, seen again."""

from __future__ import annotations

import numpy as np
import pytest

from arrays_toys import FAST, NAMES, clouds
from ba3us.adapt import adapt
from ba3us.data.domains import evenly_spaced_indices
from ba3us.errors import UserError
from ba3us.run.predict import some_rows
from ba3us.run.run import Run
from ba3us.run.spec import Spec

X, Y, XT, _ = clouds()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("again")
    np.savez(folder / "s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=NAMES)
    np.savez(folder / "t.npz", features=XT)
    spec = Spec(
        source=str(folder / "s.npz"),
        target=str(folder / "t.npz"),
        method="ba3us",
        method_params=FAST["method_params"] | {"steps": 20},
    )
    adapt(spec, folder / "run")
    return Run.load(folder / "run")


def test_rows_are_evenly_spaced():
    assert evenly_spaced_indices(3, 5).tolist() == [0, 1, 2]
    assert evenly_spaced_indices(9, 3).tolist() == [0, 4, 8]
    assert len(set(evenly_spaced_indices(1000, 300).tolist())) == 300


def test_the_model_sees_what_it_saw(run):
    both = some_rows(run.model, run.spec, (80, 40), max_samples=20)
    rows = evenly_spaced_indices(40, 20)
    assert both.target.names == [f"row {row}" for row in rows] and both.target.total == 40
    assert both.target.classes.tolist() == run.best.predictions[rows].tolist()
    assert both.source.classes.tolist() == np.searchsorted(NAMES, Y)[evenly_spaced_indices(80, 20)].tolist()
    assert both.source.features.shape == (20, 8) and (both.target.probabilities > 0.2).all()


def test_other_sizes_are_a_sentence(run):
    with pytest.raises(UserError, match="changed since the run"):
        some_rows(run.model, run.spec, (80, 41), max_samples=20)
    with pytest.raises(UserError, match="given arrays"):
        some_rows(run.model, Spec(), (80, 40), max_samples=20)
