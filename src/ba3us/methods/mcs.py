"""MCS: nearest class centroids in a subspace, solved in closed form from source centroids and target features.

    min_{P, z, y}  Σ_j ‖Pᵀx_j - z_{y_j}‖² + α Σ_c n_c ‖z_c - Pᵀμ_c‖² + β‖P‖²   over the spread tr PᵀXHXᵀP

x_j are target features of length 1, μ_c source centroids, y_j pseudo-labels, n_c their counts, H centres.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import scipy.linalg
import torch
from torch import Tensor
from torch.nn import functional as F

from ba3us.losses import full_precision
from ba3us.methods.base import DomainOutputs, Method, MethodInfo, Outputs, Phase, Recipe, Refresh, source_phase
from ba3us.methods.options import Count, NonNegative, Positive, Size
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import SourceRiskOptions, source_risk
from ba3us.nn import Network


@dataclass(frozen=True, kw_only=True)
class MCSOptions(SourceRiskOptions):
    """Settings of MCS; all `steps` train the network on the source.

    `pull` is α, which holds target centroids to the source's; `ridge` is β, in units of the mean eigenvalue
    of the matrix it is added to. The subspace has at most `dimensions`, and one less than classes. Labels,
    centroids and subspace are found in turn, at most `rounds` times. `pull` and `ridge` were chosen
    with the labels of Office-Caltech, so that no task falls clearly below the nearest source centroid.
    """

    unused: ClassVar = ("warmup_steps",)

    bottleneck: Size | None = None
    pull: NonNegative = 3.0
    ridge: Positive = 1.0
    dimensions: Size = 128
    rounds: Count = 10


@register(
    "mcs",
    MethodInfo(
        title="MCS",
        reference="Liang et al., Distant Supervised Centroid Shift, CVPR 2019",
        setting="closed-set",
        losses="reconstruction",
        note="From the abstract. Ours: the objective and its weights, the search within the span of the "
        "source centroids, and probabilities from a Gaussian around each centroid. Its two weights were chosen "
        "with the labels of Office-Caltech: tables with that data must say so.",
    ),
    with_budget(bottleneck=None),
)
class MCS(Method):
    """Source features first; then pseudo-labels, target centroids and subspace in turn."""

    Options = MCSOptions
    options: MCSOptions
    source_centroids: Tensor
    projection: Tensor
    centroids: Tensor
    spread: Tensor

    def __init__(self, options: MCSOptions, network: Network) -> None:
        super().__init__(options, network)
        classes, width = network.num_classes, network.feature_dim
        dims = max(1, min(options.dimensions, classes - 1, width))
        self.register_buffer("source_centroids", torch.zeros(classes, width))
        self.register_buffer("projection", torch.zeros(width, dims))
        self.register_buffer("centroids", torch.zeros(classes, dims))
        self.register_buffer("spread", torch.zeros(()))  # 0: not solved yet

    def recipe(self) -> Recipe:
        """The source, then a phase without steps that solves."""
        phases = source_phase(self.options.steps), Phase("solve", 0)
        refresh = Refresh(every=1, source=True, again=True, features=True)
        return dataclasses.replace(super().recipe(), phases=phases, refresh=refresh)

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """Source cross-entropy."""
        return source_risk(outputs.source, self.options)

    def refresh_source(self, source: DomainOutputs) -> None:
        """μ_c; a class without samples stays at the mean of all."""
        assert source.labels is not None
        x = F.normalize(source.features, dim=1)
        self.source_centroids.copy_(_class_means(x, source.labels, x.mean(dim=0).expand(self.num_classes, -1)))

    def refresh(self, target: DomainOutputs) -> None:
        """Solve for labels, centroids and subspace, within the span of the source centroids."""
        c, mu = self.options, self.source_centroids.double()
        directions = torch.linalg.svd(mu - mu.mean(dim=0), full_matrices=False).Vh[: max(1, len(mu) - 1)].T
        x, mu = F.normalize(target.features, dim=1).double() @ directions, mu @ directions
        centroids, labels = mu, _nearest(x, mu)
        for _ in range(c.rounds):
            # z_c = Pᵀ(mean_c + α μ_c)/(1 + α); a class without samples keeps μ_c
            centroids = (_class_means(x, labels, mu) + c.pull * mu) / (1 + c.pull)
            p = self._subspace(x, x - centroids[labels], (centroids - mu)[labels])
            before, labels = labels, _nearest(x @ p, centroids @ p)
            if torch.equal(before, labels):
                break
        self.projection.copy_(directions @ p)
        self.centroids.copy_(centroids @ p)
        residual = (x - centroids[labels]) @ p
        self.spread.copy_((residual**2).mean().clamp(min=torch.finfo(self.spread.dtype).eps))

    def _subspace(self, x: Tensor, within: Tensor, shift: Tensor) -> Tensor:
        """P: the directions in which samples spread most for how far they lie from their centroids.

        They are scaled by the latter. To give all of them the same spread, PᵀXHXᵀP = I, blows up directions
        that tell nothing where most classes are absent (Caltech-107 → Office-10: 86 % became 41 %).
        """
        near = within.T @ within + self.options.pull * shift.T @ shift
        near.diagonal().add_(self.options.ridge * near.trace().clamp(min=1e-12) / len(near))
        centred = x - x.mean(dim=0)
        top = (len(near) - self.centroids.shape[1], len(near) - 1)
        p = scipy.linalg.eigh((centred.T @ centred).cpu(), near.cpu(), subset_by_index=top)[1]
        return torch.as_tensor(p).to(x)

    def predict(self, network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gaussian log-densities around the centroids; the network's own logits until solved."""
        features, logits = network(x)
        densities = _log_densities(features, self.projection, self.centroids, self.spread)
        return features, torch.where(self.spread == 0, logits, densities)  # a graph to export has no branches


@full_precision
def _log_densities(features: Tensor, projection: Tensor, centroids: Tensor, spread: Tensor) -> Tensor:
    """-‖Pᵀx - z_c‖²/2σ², by products that every runtime has; about the mean centroid, to keep digits."""
    middle = centroids.mean(dim=0)
    x, z = F.normalize(features, dim=1) @ projection - middle, centroids - middle
    squares = x.square().sum(dim=1, keepdim=True) - 2 * x @ z.T + z.square().sum(dim=1)
    return -squares / (2 * spread)


def _class_means(x: Tensor, labels: Tensor, otherwise: Tensor) -> Tensor:
    """Mean of each class, or its row of `otherwise` where a class has no samples."""
    one_hot = F.one_hot(labels, len(otherwise)).to(x)
    counts = one_hot.sum(dim=0)[:, None]
    return torch.where(counts > 0, one_hot.T @ x / counts.clamp(min=1), otherwise)


def _nearest(points: Tensor, centroids: Tensor) -> Tensor:
    return torch.cdist(points, centroids).argmin(dim=1)
