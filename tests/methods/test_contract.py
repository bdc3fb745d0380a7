"""What every registered system must do, whoever wrote it. Registering a method puts it in here."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.methods.registry import TASKS
from ba3us.nn import Network
from ba3us.training import Callback, Execution, Result, Trainer
from toys import CLASSES, WIDTH, assert_same_run, blobs, options_for, same_state

NAMES = [entry.name for entry in methods.entries()]
BOOKS = {"phase", "step", "lr", "borrowed", "loss"}
every_method = pytest.mark.parametrize("name", NAMES)


class Poisoned(Target):
    """A target whose labels are noticed if anybody asks for them."""

    @property
    def labels(self):
        raise AssertionError("somebody read the target's labels")


class TinyNet(nn.Sequential):
    """Small images [n, 3, 9, 9] → [n, WIDTH], with batch norm."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )


def on_images(name: str) -> bool:
    return bool({"pixels", "batch norm"} & set(methods.get(name).info.needs))


def domains(name: str, n_target: int = 18, present: int = 2, dtype: Any = np.float32):
    """Feature blobs, or for methods that want images, pictures with the features as colours."""
    made, target, _ = blobs(n_target=n_target, present=present)
    arrays = [d.batch(slice(None)).numpy() for d in (made, target)]
    if on_images(name):
        noise = np.random.default_rng(0)
        arrays = [a[:, :3, None, None] + 0.1 * noise.standard_normal((len(a), 3, 9, 9)) for a in arrays]
    x, xt = (a.astype(dtype) for a in arrays)
    return Source(x, made.labels.numpy(), num_classes=CLASSES), Poisoned(xt)


def trainer(
    name: str, run: Execution | None = None, callbacks: tuple[Callback, ...] = (), **options: Any
) -> Trainer:
    """The same small network and method at every call."""
    entry = methods.get(name)
    config = entry.options(**options_for(name, **options))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = TinyNet() if on_images(name) else nn.Identity()
        network = Network(backbone, WIDTH, CLASSES, entry.method.head(config))
        method = entry.create(network, config)
    return Trainer(network, method, run or Execution(n_threads=1, log_every=1), callbacks=callbacks)


@functools.cache
def source_only_run(name: str) -> Result:
    """One run that several tests look at and none changes."""
    return trainer(name).fit(*domains(name))


class Interrupt(Callback):
    """Pulls the plug after some updates."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def on_step(self, trainer, step):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Gradients(Callback):
    """The largest gradient that each trained parameter ever got; None if it never got any."""

    def __init__(self) -> None:
        self.largest: dict[str, float | None] = {}
        self.finite = True

    def on_gradients(self, trainer, step):
        for name, p in trainer.module.named_parameters():
            if p.requires_grad:
                before = self.largest.setdefault(name, None)
                if p.grad is not None:
                    self.largest[name] = max(before or 0.0, float(p.grad.abs().max()))
                    self.finite &= bool(p.grad.isfinite().all())


# --- it runs ----------------------------------------------------------------------------------------------


@every_method
def test_predicts_every_row(name):
    result, (_, target) = source_only_run(name), domains(name)
    outputs = result.predict(target)
    assert outputs.logits.shape == (len(target), CLASSES)
    assert outputs.logits.isfinite().all() and outputs.features.isfinite().all()
    assert result.evaluations[result.best_index].candidate
    assert np.array_equal(outputs.logits.argmax(dim=1), result.evaluations[result.best_index].predictions)


@every_method
def test_reports_its_terms(name):
    """Every term of every update stands in the history under its name, and they add up to the loss."""
    built, terms = trainer(name), []
    built.module.register_forward_hook(lambda module, inputs, output: terms.append(output[1]))
    history = built.fit(*domains(name)).history
    assert len(terms) == len(history)
    for (_, row), step in zip(history.iterrows(), terms, strict=True):
        assert step and not BOOKS & step.keys()
        assert all(row[term] == float(value) for term, value in step.items())
        assert row["loss"] == pytest.approx(sum(float(v) for v in step.values()), rel=1e-4, abs=1e-5)


@every_method
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_any_float(name, dtype):
    result = trainer(name).fit(*domains(name, dtype=dtype))
    assert result.predict(domains(name, dtype=dtype)[1]).logits.isfinite().all()


@every_method
@pytest.mark.parametrize(("n_target", "present"), [(3, 2), (1, 1), (18, 1)])
def test_small_and_one_class_targets(name, n_target, present):
    source, target = domains(name, n_target, present)
    result = trainer(name).fit(source, target)
    assert result.predict(target).logits.isfinite().all()


@every_method
def test_a_class_without_samples_and_one_with_a_single_sample(name):
    source, target = domains(name)
    kept = np.flatnonzero((source.labels.numpy() < CLASSES - 2) | (np.arange(len(source)) == CLASSES - 2))
    few = Source(source.batch(kept), source.labels.numpy()[kept], num_classes=CLASSES)
    assert trainer(name).fit(few, target).predict(target).logits.isfinite().all()


# --- it repeats -------------------------------------------------------------------------------------------


@every_method
def test_repeats_bit_for_bit(name):
    assert_same_run(trainer(name).fit(*domains(name)), source_only_run(name))


@every_method
def test_asks_for_the_features_that_it_looks_at(name):
    given, kept = trainer(name), trainer(name)
    kept.rule = dataclasses.replace(kept.rule, reads="features")
    assert_same_run(given.fit(*domains(name)), kept.fit(*domains(name)))


@every_method
def test_another_seed_is_another_run(name):
    other = trainer(name, Execution(n_threads=1, log_every=1, seed=1)).fit(*domains(name))
    assert not same_state(other.states["last"], source_only_run(name).states["last"])


@every_method
@pytest.mark.parametrize("updates", [2, 6])
def test_resumes_bit_for_bit(name, updates, tmp_path):
    run = Execution(n_threads=1, log_every=1, checkpoint=tmp_path / "run.pt", checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt):
        trainer(name, run, (Interrupt(updates),)).fit(*domains(name))
    resumed = trainer(name).resume(tmp_path / "run.pt").fit(*domains(name))
    assert_same_run(resumed, source_only_run(name))


@every_method
def test_state_round_trip(name):
    result, (_, target) = source_only_run(name), domains(name)
    fresh = trainer(name)
    fresh.module.load_state_dict(result.module.state_dict())
    fresh.module.eval()
    with torch.no_grad():
        again = fresh.method.predict(fresh.module.network, target.batch(slice(None)))
    assert torch.equal(again[1], result.predict(target).logits)


# --- its numbers hold -------------------------------------------------------------------------------------


@every_method
def test_every_trained_parameter_gets_a_gradient(name):
    watch = Gradients()
    trainer(name, callbacks=(watch,)).fit(*domains(name))
    assert watch.largest and not [n for n, largest in watch.largest.items() if not largest]


@every_method
def test_finite_at_saturated_logits(name):
    watch = Gradients()
    built = trainer(name, callbacks=(watch,), learning_rate=0.0)
    with torch.no_grad():
        for key, parameter in built.module.named_parameters():
            if "classifier" in key:
                parameter.mul_(1e4)
    result = built.fit(*domains(name))
    assert watch.finite and np.isfinite(result.history["loss"]).all()


@every_method
def test_class_weights_of_zero(name):
    """Weights that rule every class out make no NaN; a weighted mean of nothing is 0."""

    class NoClass(Gradients):
        def on_step(self, trainer, step):
            trainer.method.class_weights.zero_()

    watch = NoClass()
    built = trainer(name, callbacks=(watch,))
    if not hasattr(built.method, "class_weights"):
        pytest.skip("has no class weights")
    result = built.fit(*domains(name))
    assert watch.finite and np.isfinite(result.history["loss"]).all()


# --- what it says of itself -------------------------------------------------------------------------------


@every_method
def test_says_what_it_is(name):
    info = methods.get(name).info
    assert info.title and info.reference
    assert info.losses in ("checked", "textbook") or info.note, "say what is ours"


@every_method
def test_published_settings_are_settings_it_has(name):
    entry = methods.get(name)
    for protocol, published in entry.protocols.items():
        assert set(published.tasks) <= set(TASKS[protocol])
        for task in (None, *TASKS[protocol]):
            config = entry.options(protocol, task)
            for key, value in entry.settings.items():
                assert getattr(config, key) == value, "a protocol changed what makes this system"


# --- which samples pass the network together ------------------------------------------------------------------

_BATCH, _BORROWED = 8, 2
_ONE_PASS = {"cdan+transnorm", "iwan", "mcc", "pada", "san"}
# only the target passes: the source has an encoder of its own, or no batch; MCS trains on the source alone
_ONE_DOMAIN = {"adda", "iwan-original", "mcs", "shot", "source-only"}
_SHUFFLED = {"sspda"}  # the target passes once more, with its tiles shuffled
_BORROWS = {"ba3us", "ba3us+cdan", "ba3us+cdan-closed", "ba3us-closed", "ba3us-gradual"}
_BORROWS |= {name.replace("ba3us", "baa") for name in _BORROWS - {"ba3us-gradual"}}


@every_method
def test_batch_norm_sees_the_samples_that_the_method_says(name):
    """Sizes of the passes of one step through a network with batch norm (docs/fidelity.md)."""
    entry = methods.get(name)
    config = entry.options(**options_for(name, batch_size=_BATCH))
    network = Network(TinyNet(), WIDTH, CLASSES, entry.method.head(config))
    method = entry.create(network, config)
    steps: list[list[int]] = []
    network.backbone.register_forward_hook(
        lambda module, x, y: steps[-1].append(len(x[0])) if network.training and module.training else None
    )

    class Steps(Callback):
        def on_start(self, trainer):
            steps.append([])

        def on_step(self, trainer, step):
            phases.append(step.phase)
            steps.append([])

    phases: list[str] = []
    trained = Trainer(network, method, Execution(n_threads=1), callbacks=[Steps()])
    images = [
        np.random.default_rng(i).standard_normal((n, 3, 9, 9), dtype=np.float32) for i, n in ((0, 40), (1, 18))
    ]
    trained.fit(Source(images[0], np.arange(40) % CLASSES, num_classes=CLASSES), Target(images[1]))
    passes = steps[phases.index("adapt")] if "adapt" in phases else steps[0]
    if name in _ONE_PASS:
        assert passes == [2 * _BATCH]
    elif name in _ONE_DOMAIN:
        assert passes == [_BATCH]
    else:
        more = [_BORROWED] * (name in _BORROWS) + [_BATCH] * (name in _SHUFFLED)
        assert passes == [_BATCH, _BATCH, *more]
