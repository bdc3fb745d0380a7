"""Seeds and threads: the same bits for the same seed, and nothing of the caller's is touched."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ba3us.training import Callback, Execution
from ba3us.training.checkpoints import seeded
from toys import assert_same_run, blobs, fit, options_for, same_state

SMALL = options_for("ba3us", warmup_steps=3)


def run(seed=0, n_threads=1, callbacks=(), name="ba3us"):
    source, target, _ = blobs()
    options = options_for(name, warmup_steps=3)
    return fit(
        name,
        source,
        target,
        options=options,
        config=Execution(seed=seed, n_threads=n_threads),
        callbacks=callbacks,
    )


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("name", ["source-only", "dann", "ba3us"])
def test_the_same_seed_gives_the_same_bits(name, n_threads):
    torch.manual_seed(1)
    first = run(7, n_threads, name=name)
    torch.manual_seed(2)  # the caller's randomness has no say
    np.random.seed(3)
    assert_same_run(first, run(7, n_threads, name=name))


def test_another_seed_gives_other_bits():
    a, b = run(0), run(1)
    assert not same_state(a.states["last"], b.states["last"])
    assert not a.history["loss"].equals(b.history["loss"])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_seed_decides_initial_weights_batches_and_dropout(seed):
    seen = []

    class First(Callback):
        def on_gradients(self, trainer, step):
            if not seen or seen[-1][0] != trainer:
                seen.append((trainer, trainer.module.network.classifier.weight.detach().clone()))

    run(seed, callbacks=(First(),))
    run(seed + 1, callbacks=(First(),))
    assert not torch.equal(seen[0][1], seen[1][1])


def state():
    return torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), torch.get_num_threads()


def untouched(before):
    after = state()
    return (
        torch.equal(before[0], after[0])
        and np.array_equal(before[1], after[1])
        and before[2] == after[2]
        and before[3] == after[3]
    )


def test_the_callers_randomness_and_threads_are_left_alone():
    before = state()
    run(5, n_threads=2 if before[3] == 1 else 1)
    assert untouched(before)


def test_also_when_training_fails():
    class Breaks(Callback):
        def on_step(self, trainer, step):
            raise RuntimeError("broken")

    before = state()
    with pytest.raises(RuntimeError):
        run(5, n_threads=2 if before[3] == 1 else 1, callbacks=(Breaks(),))
    assert untouched(before)


def test_the_configured_number_of_threads_is_used():
    seen = []

    class Look(Callback):
        def on_gradients(self, trainer, step):
            seen.append(torch.get_num_threads())

    for n_threads in (1, 2):
        run(n_threads=n_threads, callbacks=(Look(),))
    assert set(seen[:11]) == {1} and set(seen[11:]) == {2} and len(seen) == 22


def test_default_dtype_and_grad_mode_are_left_alone():
    run()
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()


def test_runs_in_threads_are_those_of_one_after_the_other():
    alone = [run(seed) for seed in (7, 8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, [7, 8, 7, 8]))
    for number, result in enumerate(together):
        assert_same_run(result, alone[number % 2])


def test_seeded_may_be_nested_and_gives_everything_back():
    before = state()
    with seeded(1, 1):
        outer = torch.rand(1)
        with seeded(2, 2):
            assert torch.get_num_threads() == 2
            assert torch.rand(1) != outer
        assert torch.get_num_threads() == 1
    with seeded(1):
        assert torch.rand(1) == outer
    assert untouched(before)
