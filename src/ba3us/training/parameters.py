"""Which parameters a phase trains, and with what."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from ba3us.errors import require
from ba3us.methods.base import Phase, Recipe


def trainable(module: nn.Module) -> frozenset[str]:
    """Names of the parameters that may be trained: those that come with gradients on."""
    return frozenset(name for name, parameter in module.named_parameters() if parameter.requires_grad)


def set_trained(module: nn.Module, phase: Phase, allowed: Collection[str]) -> None:
    """Gradients for the `allowed` parameters that `phase` names; what holds no such parameter is in eval mode.

    So a part that is frozen, by the phase or by the caller, keeps its batch-norm statistics and drops nothing.
    """

    def covered(name: str) -> bool:
        return any(f"{name}.".startswith(f"{t}.") for t in phase.trains)

    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in allowed and covered(name))
    for name, part in module.named_modules():  # parents before their children
        holds_trained = any(f"{t}.".startswith(f"{name}.") for t in phase.trains) or name == ""
        part.training = covered(name) or holds_trained
    for part in module.modules():
        parameters = list(part.parameters())
        if parameters and not any(p.requires_grad for p in parameters):
            part.eval()


def optimizer(module: nn.Module, recipe: Recipe, phase: Phase) -> torch.optim.SGD:
    """Fused SGD over what `phase` trains, in the groups of `recipe`."""
    groups: dict[int, list[Tensor]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            number = next(i for i, g in enumerate(recipe.groups) if f"{name}.".startswith(g.prefix))
            groups.setdefault(number, []).append(parameter)
    require(bool(groups) or phase.steps == 0, f"Phase {phase.name!r} has nothing to train.")
    chosen = [(recipe.groups[i], parameters) for i, parameters in sorted(groups.items())]
    return torch.optim.SGD(
        [
            {
                "params": parameters,
                "lr_scale": group.lr_scale,
                "momentum": group.momentum,
                "nesterov": recipe.nesterov and group.momentum > 0,
            }
            for group, parameters in chosen
        ]
        or [torch.zeros(1)],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
