"""Normalisation layers: standardising by the source, and TransNorm (Wang et al., NeurIPS 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ba3us.errors import UserError

# Root mean square of all values. Features of pretrained backbones lie between 0.4 and 0.9 (ResNet-50,
# EfficientNet-Lite0; unit vectors far below), and their figures are without standardisation. At 3.5 (log-mel
# energies) the adversarial losses overflow within 60 steps of the default rates; at 1.9 they do not (generated
# data). Heartbeats and bearings lie between 0.2 and 0.5: no real data measured so far is near the upper bound.
_LOW, _HIGH = 0.01, 2.0
_MAX_RATIO = 100.0  # of the largest column's size to the median column's
_MIN_DEVIATION = 1e-6  # of a column's mean: a smaller deviation is rounding


class Standardize(nn.Module):
    """(x - mean) / deviation, column by column, set by :meth:`fit`; the identity before.

    As the first layer of a network it makes any unit of measurement trainable.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def fit(self, rows: Tensor) -> Standardize:
        """Take mean and deviation from rows [n, width] of the source."""
        wide = rows.double()
        mean, deviation = wide.mean(dim=0), wide.std(dim=0, unbiased=False)
        least = _MIN_DEVIATION * mean.abs()
        varies = (deviation > least) & (deviation.float() > 0)  # float32 may round the smallest to nothing
        self.mean = mean.float()
        self.deviation = torch.where(varies, deviation, torch.ones_like(deviation)).float()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """[n, width] → the same shape, standardised."""
        return (x - self.mean) / self.deviation


def far_from_unit(rows: Tensor) -> bool:
    """Whether columns are so large, so small or so unlike one another that a network would not learn from them.

    Features of pretrained networks are not: theirs are left as they are.
    """
    sizes = rows.double().square().mean(dim=0).sqrt()
    typical = float(sizes[sizes > 0].median()) if bool((sizes > 0).any()) else 1.0
    overall = float(sizes.square().mean().sqrt())
    return not _LOW <= overall <= _HIGH or float(sizes.max()) > _MAX_RATIO * typical


class TransNorm(nn.Module):
    """Batch norm by domain, with larger weights for channels that transfer well; channels are axis 1.

    In training the batch is [source half; target half] in one pass. Each half is normalised with its own
    statistics; γ and β are shared. With d_c = |μ_s/√(v_s+ε) - μ_t/√(v_t+ε)| per channel and π = 1/(1+d),
    the output is z·(1 + α), α = C·π/Σπ, a constant for the gradient. In evaluation every row is a target row.
    """

    running_mean_source: Tensor
    running_mean_target: Tensor
    running_var_source: Tensor
    running_var_target: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        for domain in ("source", "target"):
            self.register_buffer(f"running_mean_{domain}", torch.zeros(num_features))
            self.register_buffer(f"running_var_{domain}", torch.ones(num_features))

    @classmethod
    def like(cls, norm: nn.modules.batchnorm._BatchNorm) -> TransNorm:
        """From a batch norm layer, whose running statistics go into both domains' copies."""
        layer = cls(norm.num_features, norm.eps, 0.1 if norm.momentum is None else norm.momentum)
        with torch.no_grad():
            if norm.affine:
                layer.weight.copy_(norm.weight)
                layer.bias.copy_(norm.bias)
            for domain in ("source", "target") if norm.running_mean is not None else ():
                getattr(layer, f"running_mean_{domain}").copy_(norm.running_mean)
                getattr(layer, f"running_var_{domain}").copy_(norm.running_var)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """[n, C, …] → the same shape."""
        source = (self.running_mean_source, self.running_var_source)
        target = (self.running_mean_target, self.running_var_target)
        if not self.training:
            return self._normalised(x, *target) * (1 + self._alpha(*source, *target, x))
        if len(x) % 2:
            raise UserError(f"TransNorm trains on source and target halves, but was given {len(x)} rows.")
        halves = x.chunk(2)
        z = torch.cat([self._normalised(half, *s) for half, s in zip(halves, (source, target))])
        axes = [a for a in range(x.dim()) if a != 1]
        whole = torch.promote_types(x.dtype, torch.float32)
        (var_s, mean_s), (var_t, mean_t) = (torch.var_mean(h.detach().to(whole), axes) for h in halves)
        return z * (1 + self._alpha(mean_s, var_s, mean_t, var_t, x))

    def _normalised(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.momentum, self.eps)

    def _alpha(self, mean_s: Tensor, var_s: Tensor, mean_t: Tensor, var_t: Tensor, x: Tensor) -> Tensor:
        """α per channel, shaped to multiply x."""
        distance = (mean_s / (var_s + self.eps).sqrt() - mean_t / (var_t + self.eps).sqrt()).abs()
        pi = 1 / (1 + distance)
        alpha = self.num_features * pi / pi.sum()
        return alpha.to(x.dtype).view(1, -1, *[1] * (x.dim() - 2))


class TransNorm1d(TransNorm):
    """TransNorm of vectors, [n, C]."""


class TransNorm2d(TransNorm):
    """TransNorm of maps, [n, C, H, W]."""


def swap_batch_norm(module: nn.Module) -> None:
    """Replace every batch norm layer below `module` by TransNorm.

    A layer with more after its batch norm (timm's ``BatchNormAct2d``) keeps its dropout and activation.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d):
            setattr(module, name, TransNorm1d.like(child))
        elif isinstance(child, nn.BatchNorm2d):
            rest = [getattr(child, part) for part in ("drop", "act") if hasattr(child, part)]
            layer = TransNorm2d.like(child)
            setattr(module, name, nn.Sequential(layer, *rest) if rest else layer)
        elif isinstance(child, nn.modules.batchnorm._BatchNorm):
            raise UserError(f"TransNorm can't replace a {type(child).__name__} layer: choose another backbone.")
        else:
            swap_batch_norm(child)
