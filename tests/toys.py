"""Small domains and networks for the behaviour tests: everything runs in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.nn import Network
from ba3us.training import Callback, Execution, Result, Trainer, seeded

WIDTH, CLASSES = 6, 4
SMALL: dict[str, Any] = {"steps": 8, "batch_size": 6, "refresh_every": 4, "bottleneck": 5}


def blobs(n_source: int = 40, n_target: int = 18, present: int = 2, seed: int = 0):
    """A source with CLASSES shifted clouds, a target with the first `present`; and the target's labels."""
    g = np.random.default_rng(seed)
    centres = 3 * g.standard_normal((CLASSES, WIDTH))
    y, yt = np.arange(n_source) % CLASSES, np.arange(n_target) % present
    x = centres[y] + g.standard_normal((n_source, WIDTH))
    xt = centres[yt] + 0.5 + g.standard_normal((n_target, WIDTH))
    return Source(x.astype(np.float32), y), Target(xt.astype(np.float32)), yt


def options_for(name: str, **options: Any) -> dict[str, Any]:
    """Small settings of a method, as far as it has them."""
    entry = methods.get(name)
    small = SMALL | {"discriminator_hidden": 7}
    known = {k: v for k, v in small.items() if hasattr(entry.options(), k)}
    return known | options


def build(name: str = "ba3us", backbone: nn.Module | None = None, seed: int = 0, **options: Any):
    """A small network and the method called `name` for it."""
    entry = methods.get(name)
    config = entry.options(**options_for(name, **options))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Network(backbone or nn.Identity(), WIDTH, CLASSES, entry.method.head(config))
        return network, entry.create(network, config)


def trainer(
    name: str = "ba3us",
    *,
    run: Execution | None = None,
    callbacks: tuple[Callback, ...] = (),
    backbone: nn.Module | None = None,
    rule: Any = "entropy",
    **options: Any,
) -> Trainer:
    """A trainer over small parts, the same ones at every call."""
    network, method = build(name, backbone, **options)
    return Trainer(network, method, run or Execution(n_threads=1, log_every=1), callbacks=callbacks, rule=rule)


def fit(
    method: str,
    source: Source,
    target: Target,
    *,
    options: dict[str, Any] | None = None,
    backbone: nn.Module | None = None,
    backbone_dim: int | None = None,
    classifier: nn.Linear | None = None,
    config: Execution | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Network, method and loop over domains that a spec can't name."""
    entry, config = methods.get(method), config or Execution()
    settings = entry.options(**(options or {}))
    with seeded(config.seed):
        body, width = backbone or nn.Identity(), backbone_dim or source.shape[0]
        network = Network(body, width, source.num_classes, entry.method.head(settings), classifier)
        built = entry.create(network, settings)
    return Trainer(network, built, config, callbacks=callbacks).fit(source, target)


def same_state(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Whether two state dicts hold the same bits."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def assert_same_run(a: Result, b: Result) -> None:
    """Two results agree in every bit: weights, history, evaluations, selection."""
    assert a.states.keys() == b.states.keys()
    for which in a.states:
        assert same_state(a.states[which], b.states[which]), which
    assert a.history.equals(b.history)
    assert a.best_index == b.best_index
    assert len(a.evaluations) == len(b.evaluations)
    for one, other in zip(a.evaluations, b.evaluations):
        for name, value in vars(one).items():
            assert np.array_equal(value, vars(other)[name]), name
