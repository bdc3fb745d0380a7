"""SSPDA: solving jigsaw puzzles of target images, which needs no class in common with the source."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from ba3us import losses
from ba3us.errors import require
from ba3us.methods.base import Inputs, Method, MethodInfo, Outputs, Step
from ba3us.methods.options import Fraction, NonNegative, Range, Size
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import SourceRiskOptions, source_risk
from ba3us.nn import Network
from ba3us.nn.network import xavier

GRID = 3
_LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True, kw_only=True)
class SSPDAOptions(SourceRiskOptions):
    """Settings of SSPDA.

    One of `permutations` is to be recognised in shuffled target images; that task weighs `jigsaw_weight`,
    the entropy of ordered target images `entropy_weight`. A tile of a shuffled colour image is made grey
    with probability `grey`.
    """

    bottleneck: Size | None = None
    permutations: Annotated[int, Range("from 1 to 1000", lambda v: 1 <= v <= 1000)] = 30
    jigsaw_weight: NonNegative = 1.0
    entropy_weight: NonNegative = 0.2
    grey: Fraction = 0.1


@functools.cache
def distant_permutations(count: int) -> Tensor:
    """`count` orders of the tiles, far from being in order and from each other. → [count, 9].

    Greedy: the next one has the largest least Hamming distance to those chosen, then the largest sum of
    them; ties go to the first in lexicographic order.
    """
    every = np.array(list(itertools.permutations(range(GRID**2))), dtype=np.int8)
    chosen = [every[0]]  # in order; not among the results
    least, total = np.full(len(every), GRID**2), np.zeros(len(every), dtype=np.int64)
    for _ in range(count):
        distance = (every != chosen[-1]).sum(axis=1)
        least, total = np.minimum(least, distance), total + distance
        chosen.append(every[int(np.argmax(least * (total.max() + 1) + total))])
    return torch.from_numpy(np.stack(chosen[1:]).astype(np.int64))


def shuffle_tiles(images: Tensor, orders: Tensor) -> Tensor:
    """Images [n, c, h, w] whose k-th tile is tile orders[:, k] of the original.

    Tiles are as large as fit three times; what is left over at the right and bottom stays as it is.
    """
    n, c, height, width = images.shape
    h, w = height // GRID, width // GRID
    whole = images[:, :, : GRID * h, : GRID * w]
    tiles = whole.reshape(n, c, GRID, h, GRID, w).permute(0, 2, 4, 1, 3, 5).reshape(n, GRID**2, c, h, w)
    tiles = tiles[torch.arange(n, device=images.device)[:, None], orders]
    mixed = tiles.reshape(n, GRID, GRID, c, h, w).permute(0, 3, 1, 4, 2, 5)
    shuffled = images.clone()
    shuffled[:, :, : GRID * h, : GRID * w] = mixed.reshape(n, c, GRID * h, GRID * w)
    return shuffled


@register(
    "sspda",
    MethodInfo(
        title="SSPDA",
        reference="Bucci et al., Tackling Partial Domain Adaptation with Self-Supervision, ICIAP 2019",
        setting="partial",
        losses="reconstruction",
        needs=("pixels",),
        note="After JiGen's released puzzles, the loss from memory. Ours: the search for permutations, as "
        "many shuffled as ordered images, all coefficients.",
    ),
    with_budget(bottleneck=None),
)
class SSPDA(Method):
    """min  CE(source) + α·CE(which permutation, target) + η·H(ordered target)."""

    Options = SSPDAOptions
    options: SSPDAOptions
    orders: Tensor

    def __init__(self, options: SSPDAOptions, network: Network) -> None:
        super().__init__(options, network)
        self.jigsaw = nn.Linear(network.feature_dim, options.permutations + 1)  # class 0: in order
        self.jigsaw.apply(xavier)
        self.register_buffer("orders", distant_permutations(options.permutations).clone())

    def outputs(self, network: Network, inputs: Inputs) -> Outputs:
        """Source and target as they are, and the target's puzzles under ``extra``."""
        shape = tuple(inputs.source.x.shape[1:])
        require(
            len(shape) == 3 and min(shape[1:]) >= GRID,
            f"SSPDA cuts images into {GRID}×{GRID} tiles but a sample has shape {shape}: "
            "give it images [channels, height, width], or choose a method that takes features.",
        )
        outputs, target = super().outputs(network, inputs), inputs.target
        if not len(target.x):
            return outputs
        puzzle = torch.randint(len(self.orders), (len(target.x),)).to(self.orders.device)
        features = network(self._greyed(shuffle_tiles(target.x, self.orders[puzzle])))[0]
        extra = {"puzzle": puzzle + 1, "features": features}
        return dataclasses.replace(outputs, target=dataclasses.replace(outputs.target, extra=extra))

    def _greyed(self, images: Tensor) -> Tensor:
        """Colour images with some tiles in grey, so that the puzzle is not solved by matching colours."""
        n, channels, height, width = images.shape
        if channels != len(_LUMINANCE):
            return images
        rows, columns = (
            torch.arange(s).div(s // GRID, rounding_mode="floor").clamp(max=GRID - 1) for s in (height, width)
        )
        chosen = (torch.rand(n, GRID, GRID) < self.options.grey)[:, rows][:, :, columns].to(images.device)
        grey = torch.einsum("nchw,c->nhw", images, images.new_tensor(_LUMINANCE))
        return torch.where(chosen[:, None], grey[:, None], images)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the puzzles, target entropy."""
        c, target = self.options, outputs.target
        # which order, for ordered (0) and for shuffled images
        scores = self.jigsaw(torch.cat([target.features, target.extra["features"]]))
        puzzle = target.extra["puzzle"]
        labels = torch.cat([torch.zeros_like(puzzle), puzzle])
        jigsaw = losses.weighted_cross_entropy(scores, labels, torch.ones_like(scores[:, 0]))
        return source_risk(outputs.source, c) | {
            "jigsaw": c.jigsaw_weight * jigsaw,
            "entropy": c.entropy_weight * losses.entropy(target.logits).mean(),
        }
