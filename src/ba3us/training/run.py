"""From a method's name and two domains to a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.nn import Network
from ba3us.training.config import RunConfig
from ba3us.training.hooks import Hook
from ba3us.training.loop import Trainer
from ba3us.training.result import Result
from ba3us.training.seeding import seeded


def fit(
    method: str,
    source: Source,
    target: Target,
    *,
    options: dict[str, Any] | None = None,
    backbone: nn.Module | None = None,
    backbone_dim: int | None = None,
    classifier: nn.Linear | None = None,
    config: RunConfig | None = None,
    hooks: Sequence[Hook] = (),
) -> Result:
    """Build the network and the method, train, and return the result.

    Parameters
    ----------
    method : str
        A registered name (``ba3us methods`` lists them).
    source, target : Source, Target
        The domains.
    options : dict, optional
        Hyper-parameters over the method's own.
    backbone, backbone_dim : Module, int, optional
        What maps a sample to a vector; by default the samples are feature vectors already.
    classifier : Linear, optional
        The backbone's own pretrained classifier, for methods set to keep it (``keep_classifier``).
    config : RunConfig, optional
        Seed, threads, device, checkpoints.
    hooks : sequence of Hook
        Onlookers, such as a progress bar.
    """
    config = config or RunConfig()
    entry = methods.get(method)
    settings = entry.config(**(options or {}))
    with seeded(config.seed, config.threads):
        network = Network(
            backbone if backbone is not None else nn.Identity(),
            backbone_dim if backbone_dim is not None else source.shape[0],
            source.num_classes,
            entry.method.head(settings),
            classifier,
        )
        built = entry.create(network, settings)
    return Trainer(network, built, config, hooks=hooks).fit(source, target)
