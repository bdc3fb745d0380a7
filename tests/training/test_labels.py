"""No target label can reach training."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.methods.base import Batch, Method
from ba3us.training import Callback, Execution, Trainer
from toys import CLASSES, assert_same_run, blobs, build, fit, options_for, trainer


class Poison:
    """Labels that can't be looked at without being noticed."""

    def __getattribute__(self, name):
        raise AssertionError(f"target labels were touched ({name})")

    def _raise(self, *_):
        raise AssertionError("target labels were touched")

    __getitem__ = __len__ = __iter__ = __eq__ = __array__ = __bool__ = __hash__ = _raise


class PoisonedTarget(Target):
    """A target that carries labels nobody may read."""

    @property
    def labels(self):
        raise AssertionError("target labels were touched")


def with_poison(target):
    """The target as a Source, which a user who has labels might pass, with labels that bite."""
    rows = target.batch(slice(0, len(target)))
    carrier = Source(rows, np.zeros(len(target), dtype=np.int64), num_classes=CLASSES)
    carrier.labels = Poison()
    return carrier


@pytest.mark.parametrize(
    "read", [lambda p: p[0], lambda p: p.shape, lambda p: np.asarray(p), list, torch.as_tensor]
)
def test_the_poison_bites(read):
    with pytest.raises(AssertionError, match="touched"):
        read(Poison())


@pytest.mark.parametrize(
    "name", ["source-only", "dann", "e-dann", "aus", "baa", "ba3us", "ba3us+cdan", "ba3us-closed"]
)
@pytest.mark.parametrize("kind", ["property", "source"])
def test_poisoned_target_labels_are_never_read(name, kind, tmp_path):
    source, target, _ = blobs()
    poisoned = PoisonedTarget(target.batch(slice(0, 18))) if kind == "property" else with_poison(target)
    run = Execution(n_threads=1, log_every=1, evaluate_every=1, checkpoint=tmp_path / "c.pt")
    result = trainer(name, run=run, warmup_steps=2).fit(source, poisoned)
    result.predict(poisoned)
    assert_same_run(result, trainer(name, run=run, warmup_steps=2).fit(source, target))


def test_a_method_is_never_handed_target_labels():
    source, target, labels = blobs()
    carrier = Source(target.batch(slice(0, 18)), labels, num_classes=CLASSES)
    network, method = build(warmup_steps=2)
    seen = []
    inner_outputs, inner_refresh = method.outputs, method.refresh

    def outputs(network, inputs):
        seen.append(inputs.target.labels)
        made = inner_outputs(network, inputs)
        seen.append(made.target.labels)
        return made

    def refresh(target):
        seen.append(target.labels)
        inner_refresh(target)

    method.outputs, method.refresh = outputs, refresh
    Trainer(network, method, Execution(n_threads=1)).fit(source, carrier)
    assert len(seen) == 2 * 10 + 2 and all(labels is None for labels in seen)


def test_the_training_api_has_no_argument_for_target_labels():
    wanted = {
        Trainer.fit: ["self", "source", "target"],
        Method.refresh: ["self", "target"],
        Method.losses: ["self", "outputs", "step"],
        Target.__init__: ["self", "x", "views", "name"],
    }
    for function, names in wanted.items():
        assert list(inspect.signature(function).parameters) == names
    assert not any("label" in name or name in ("y", "yt") for name in inspect.signature(fit).parameters)


def test_source_labels_do_arrive():
    """The control: with other source labels the run is another."""
    source, target, _ = blobs()
    other = Source(source.batch(slice(0, 40)), (source.labels + 1) % CLASSES)
    one, two = (trainer().fit(s, target) for s in (source, other))
    assert not one.history["loss"].equals(two.history["loss"])


def test_a_batch_without_rows_keeps_its_kind():
    batch = Batch(torch.ones(3, 2), torch.arange(3), torch.arange(3))
    empty = batch.none()
    assert empty.x.shape == (0, 2) and len(empty.rows) == 0 and len(empty.labels) == 0
    assert Batch(batch.x, batch.rows).none().labels is None


@pytest.mark.parametrize("entry", list(methods.entries()), ids=lambda e: e.name)
def test_no_registered_method_names_target_labels(entry):
    """A method's text never asks for the labels of the target."""
    text = inspect.getsource(inspect.getmodule(entry.method))
    assert "target.labels" not in text


def reachable(value, seen):
    """Yield everything that attributes and containers lead to from a value."""
    if id(value) in seen or isinstance(value, type):
        return
    seen[id(value)] = value  # alive, so that no other object gets its id
    yield value
    inner = [getattr(value, "__self__", None), *getattr(value, "__dict__", {}).values()]
    inner += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    inner += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    for each in inner:
        yield from reachable(each, seen)


def test_callbacks_find_no_target_on_the_trainer():
    source, target, labels = blobs()
    carrier = Source(target.batch(slice(0, 18)), labels, num_classes=CLASSES)
    found = []

    class Look(Callback):
        def on_step(self, trainer, step):
            everything = list(reachable(trainer, {}))
            assert any(value is trainer.method for value in everything)
            found.extend(v for v in everything if v is carrier or v is carrier.labels)

    fit(
        "ba3us",
        source,
        carrier,
        options=options_for("ba3us"),
        config=Execution(n_threads=1),
        callbacks=[Look()],
    )
    assert found == []
