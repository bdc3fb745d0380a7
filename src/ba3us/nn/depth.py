"""How deep to train: a backbone cut into a frozen front and a trained tail."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ba3us.errors import UserError, require
from ba3us.nn.backbones import Backbone
from ba3us.nn.inference import replace

DEPTHS = ("head", "tail", "all")


@dataclass(frozen=True)
class Cut:
    """A backbone in two parts: ``tail(front(x))`` is what it was.

    Attributes
    ----------
    front : Module or None
        The frozen part, in eval mode and without gradients; None if all of the backbone is trained.
    tail : Module
        The trained part; ``nn.Identity()`` if nothing of it is.
    first : str or None
        Name of the first trained block; None if there is none.
    """

    front: nn.Module | None
    tail: nn.Module
    first: str | None


def cut(backbone: Backbone, train: str, *, check: bool = True) -> Cut:
    """Cut a backbone in two where training begins. Its module is taken apart: use the parts from now on.

    Works for networks whose blocks follow one another; whether the parts are the whole again is checked on
    one random image, unless `check` is off.

    Parameters
    ----------
    backbone : Backbone
        From :func:`ba3us.nn.backbones.create_backbone`.
    train : str
        ``"all"``: the whole backbone; ``"tail"``: the last third of its blocks; ``"head"``: nothing of it,
        only what stands on it; or the name of a stage or block (``layer4``, ``blocks.5``): from there on.
    """
    model = backbone.module
    chain = _chain(model)
    if train == "all":
        return Cut(None, model, chain[0][0])
    if train == "head":
        return Cut(_frozen(model), nn.Identity(), None)
    start = _start(chain, train, backbone.name)
    if start == 0:
        return Cut(None, model, chain[0][0])
    whole = _seen(model, backbone.size) if check else None
    front = _frozen(nn.Sequential(*(unit for _, unit in chain[:start])))
    for name, _ in chain[:start]:
        replace(model, name, nn.Identity())
    same = whole is None or _gives(model, front, backbone.size, whole)
    first = chain[start][0]
    require(
        same,
        f"The backbone {backbone.name!r} can't be cut at {first!r}, because its blocks do not just follow one "
        f"another: train 'head' or 'all' of it.",
    )
    return Cut(front, model, first)


class Frozen(nn.Module):
    """A module that stays in eval mode and without gradients, inside a network that is trained."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = _frozen(module)
        self.training = False

    def train(self, mode: bool = True) -> Frozen:
        """Stay in eval mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """What the module gives in eval mode."""
        with torch.no_grad():
            return self.module(x)


def stages(model: nn.Module) -> list[str]:
    """Names from which a network can be trained on: its stages and the blocks outside them, in order."""
    names = (name.rpartition(".")[0] or name for name, unit in _chain(model) if _has_weights(unit))
    return list(dict.fromkeys(names))


def _chain(model: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Blocks in the order in which they were put in; sequences are opened."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in model.named_children():
        if isinstance(child, nn.Sequential) and len(child):
            found += _chain(child, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", child))
    return found


def _start(chain: list[tuple[str, nn.Module]], train: str, backbone: str) -> int:
    """Position of the first trained block."""
    if train == "tail":
        weighted = [position for position, (_, unit) in enumerate(chain) if _has_weights(unit)]
        return weighted[-max(1, len(weighted) // 3)]
    for position, (name, _) in enumerate(chain):
        if f"{name}.".startswith(f"{train}."):
            return position
    names = {part for name, _ in chain for part in (name, name.rpartition(".")[0]) if part}
    near = difflib.get_close_matches(train, [*DEPTHS, *names], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join((*DEPTHS, *sorted(names)))}."
    raise UserError(f"The backbone {backbone!r} has no stage called {train!r} to train from: {hint}")


def _has_weights(unit: nn.Module) -> bool:
    """Whether it is more than a norm layer, an activation or a pool."""
    return any(parameter.dim() > 1 for parameter in unit.parameters())


def _frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(False)


def _gives(tail: nn.Module, front: nn.Module, size: int, whole: Tensor) -> bool:
    try:
        parts = _seen(tail, size, front)
    except (RuntimeError, TypeError, AssertionError, ValueError, IndexError):
        return False  # what comes out of the front does not fit what was left of the rest
    return parts is not None and parts.shape == whole.shape and torch.allclose(parts, whole, 1e-3, 1e-4)


def _seen(model: nn.Module, size: int, front: nn.Module | None = None) -> Tensor | None:
    """The features of one random image, in eval mode; None without real weights."""
    weight = next(model.parameters(), None) if front is None else next(front.parameters(), None)
    if weight is None or weight.is_meta:
        return None
    modes = [(module, module.training) for module in model.modules()]
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(weight)
    try:
        model.eval()
        with torch.no_grad():
            return model(image if front is None else front(image))
    finally:
        for module, mode in modes:
            module.training = mode
