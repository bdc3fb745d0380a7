"""The losses of partial domain adaptation: pure functions, tensors in, scalar out.

Shapes: B source rows, T target rows, K borrowed rows, C classes, d features. Every function computes in
float32 at least, also under autocast, and stays finite at saturated logits.

Where the BA³US paper prints one formula and its released code computes another, ``form`` chooses:
``"released"`` (what produced the published numbers) or ``"paper"``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

Form = Literal["released", "paper"]

_EPS_ENTROPY = 1e-7  # inside the logarithm of the released entropy
_EPS_SUM = 1e-8  # added to the released cross-entropy and adversarial weight sums
_EPS_WRONG = 1e-7  # added to the wrong-class mass 1 - p_a
_EPS_RATIO = 1e-10  # inside the logarithm of the complement entropy

_Function = TypeVar("_Function", bound=Callable[..., Any])


def full_precision(function: _Function) -> _Function:
    """Run a loss outside autocast, with half-precision arguments raised to float32."""

    def raised(value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if half else value

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device.type for a in args if isinstance(a, Tensor)), "cpu")
        if not torch.is_autocast_enabled(device):
            return function(*map(raised, args), **{k: raised(v) for k, v in kwargs.items()})
        with torch.autocast(device, enabled=False):
            return function(*map(raised, args), **{k: raised(v) for k, v in kwargs.items()})

    return wrapper  # type: ignore[return-value]


def _shares(weights: Tensor) -> Tensor:
    """Weights over their sum; all zero when that is zero."""
    return weights / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


@full_precision
def entropy(logits: Tensor, eps: float = _EPS_ENTROPY, floor: float = 0.0) -> Tensor:
    """Shannon entropy of softmax(logits) per row: H = -Σ_c p_c log(p_c + eps). [n, C] → [n].

    With a `floor`, entries p_c below it are left out and there is no eps (PADA, SAN, AFN, DCAN).
    """
    p = logits.softmax(dim=1)
    if floor > 0:
        kept = torch.where(p >= floor, p, torch.ones_like(p))  # 1·log 1 adds nothing, nor a gradient
        return -(kept * kept.log()).sum(dim=1)
    return -(p * (p + eps).log()).sum(dim=1)


@full_precision
def entropy_weights(entropies: Tensor) -> Tensor:
    """w = 1 + exp(-H): sure samples count up to twice as much as unsure ones. [n] → [n]."""
    return 1 + (-entropies).exp()


@full_precision
def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor, form: Form | None = None, smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy with sample weights m(y) (L_cls^w of Eq. 4); 0 when all weights are 0.

    It is divided by the sum of the weights, so that their scale does not matter, plus 1e-8 in BA³US's
    ``released`` form; in its ``paper`` form by the number of rows. `smoothing` spreads that share of each label
    evenly over all classes.
    """
    losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    if form == "paper":
        return (weights * losses).mean()
    shares = weights / (_EPS_SUM + weights.sum()) if form == "released" else _shares(weights)
    return (shares * losses).sum()


@full_precision
def domain_loss(scores: Tensor, is_source: bool) -> Tensor:
    """Binary cross-entropy per row of discriminator logits; source = 1, target and borrowed = 0."""
    wrong = -scores if is_source else scores
    return F.softplus(wrong, threshold=40.0)  # -log σ(-x); beyond 40 it is x to the last bit of float64


@full_precision
def adversarial_loss(
    source: Tensor,
    target: Tensor,
    source_weights: Tensor | None = None,
    target_weights: Tensor | None = None,
) -> Tensor:
    """½·(mean of w·BCE over source rows + the same over target rows), from discriminator logits."""
    sides = (domain_loss(source, True), source_weights), (domain_loss(target, False), target_weights)
    one, other = ((values if w is None else w * values).mean() for values, w in sides)
    return 0.5 * (one + other)


@full_precision
def balanced_adversarial_loss(
    scores: Tensor, weights: Tensor, sizes: tuple[int, int, int], form: Form = "released"
) -> Tensor:
    """L_adv^ba (Eq. 5), to be minimised by D, with borrowed source rows on the target's side.

    Parameters
    ----------
    scores : Tensor [B + T + K]
        Discriminator logits of source, target and borrowed rows.
    weights : Tensor [B + T + K]
        w(x)·m(y) for source and borrowed rows, w(x) for target rows. Not detached: gradients may flow.
    sizes : (B, T, K)
        K may be 0 (then it is L_adv^e, Eq. 2).
    form : {"released", "paper"}
        ``paper`` is the sum of the three means, with ρ = K/B. ``released`` is a weighted mean over all rows:
        source and borrowed weights share one normaliser and weigh 1 + ρ together, the target weighs 1; every
        normaliser is detached.
    """
    b, _, k = sizes
    rho = k / b
    w_source, w_target, w_borrowed = weights.split(list(sizes))
    d_source, d_target, d_borrowed = scores.split(list(sizes))
    source = w_source * domain_loss(d_source, True)
    target = w_target * domain_loss(d_target, False)
    borrowed = w_borrowed * domain_loss(d_borrowed, False)
    if form == "paper":
        return source.mean() + target.mean() + borrowed.sum() / b  # the last is ρ times a mean over K rows
    with torch.no_grad():
        of_source, of_target = w_source.sum() + w_borrowed.sum(), w_target.sum()
        total = (1 + rho) * (of_source > 0) + (of_target > 0) + _EPS_SUM  # 2 + ρ, if both have any weight
        tiny = torch.finfo(weights.dtype).tiny
        # without any weight divide by 1: the gradient of w(x) would overflow before it meets m(y) = 0
        of_source, of_target = (s.clamp(min=tiny) + (s == 0) for s in (of_source, of_target))
    return ((1 + rho) * (source.sum() + borrowed.sum()) / of_source + target.sum() / of_target) / total


@full_precision
def complement_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor, xi: float = 1.0, form: Form = "released"
) -> Tensor:
    """L_wce^w (Eq. 6): confidence-weighted complement entropy, in [-1, 0]; lower is flatter.

    With a the true class, r_j = p_j / (1 - p_a) and s = Σ_{j≠a} r_j log r_j / log(C - 1), it is the mean of
    s under the weights m(y)·(1 - p_a)^ξ; ξ = 0 gives the plain complement entropy. With fewer than three
    classes there is nothing to flatten and it is 0.

    ``released`` detaches the weights and divides by their sum; ``paper`` divides by the number of rows and
    lets the gradient through (1 - p_a)^ξ. The gradient through p_a inside r flows in both.

    The released epsilons are kept: a row whose wrong-class mass is far below 1e-7 counts for nothing. That
    mass is summed over the wrong classes, which float32 can hold where 1 - p_a is rounding noise.
    """
    classes = logits.shape[1]
    if classes < 3:
        return logits.sum() * 0.0
    p = logits.softmax(dim=1)
    wrong = p.scatter(1, labels[:, None], 0.0)
    mass = wrong.sum(dim=1, keepdim=True) + _EPS_WRONG
    ratio = wrong / mass
    # the true class has ratio 0 and adds 0·log(1e-10) = 0
    flatness = (ratio * (ratio + _EPS_RATIO).log()).sum(dim=1)
    if form == "paper":
        return (weights * mass.squeeze(1) ** xi * flatness).mean() / math.log(classes - 1)
    with torch.no_grad():
        unsure = mass.squeeze(1)
        if xi != 1:  # (1 - p_a)^ξ of a sure batch underflows for a large ξ
            unsure = _shares(unsure**xi)
        shares = _shares(weights * unsure) / math.log(classes - 1)
    return (shares * flatness).sum()


@full_precision
def outer_product(features: Tensor, probabilities: Tensor) -> Tensor:
    """Conditional discriminator input vec(p ⊗ f) with p detached, class-major. [n, d], [n, C] → [n, C·d]."""
    return (probabilities.detach()[:, :, None] * features[:, None, :]).flatten(1)


@full_precision
def hard_norm_loss(features: Tensor, radius: float) -> Tensor:
    """HAFN: (mean ‖f‖ - radius)², which draws the mean feature norm to a common radius."""
    return (features.norm(dim=1).mean() - radius) ** 2


@full_precision
def stepwise_norm_loss(features: Tensor, step: float) -> Tensor:
    """SAFN: mean (‖f‖ - (‖f‖ detached + step))²; its value is step², its gradient pulls every norm outward."""
    norms = features.norm(dim=1)
    return ((norms - (norms.detach() + step)) ** 2).mean()


@full_precision
def class_confusion(logits: Tensor, temperature: float) -> Tensor:
    """MCC: how much the rows confuse pairs of classes, (Σ M - tr M)/C with M = pᵀ diag(w) p, rows summing to 1.

    p = softmax(logits/T); w = 1 + e^(-H), detached and scaled to mean 1. A class no row gives a chance
    counts for nothing.
    """
    p = (logits / temperature).softmax(dim=1)
    w = entropy_weights(entropy(logits / temperature, eps=1e-5)).detach()
    confusion = p.T @ (p * (w / w.mean())[:, None])
    tiny = torch.finfo(p.dtype).eps ** 2
    confusion = confusion / confusion.sum(dim=1, keepdim=True).clamp(min=tiny)
    return (confusion.sum() - confusion.trace()) / p.shape[1]


@full_precision
def disagreement(logits: Tensor, other: Tensor) -> Tensor:
    """TWINs: mean over rows of Σ_c |p_c - p'_c| between two networks' predictions, in [0, 2]."""
    return (logits.softmax(dim=1) - other.softmax(dim=1)).abs().sum(dim=1).mean()


@full_precision
def gaussian_kernels(
    x: Tensor, bandwidth: float | None = None, octaves: tuple[int, ...] = (-2, -1, 0, 1, 2)
) -> Tensor:
    """K(x, y) = Σ_k exp(-‖x - y‖²/(b·2^k)) between all rows. [n, d] → [n, n].

    b is `bandwidth`, or the mean squared distance over all pairs of different rows, detached.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    n = len(x)
    b = distances.detach().sum() / max(1, n * n - n) if bandwidth is None else distances.new_tensor(bandwidth)
    b = torch.where(b > 0, b, torch.ones_like(b))
    return torch.stack([(-distances / (b * 2.0**k)).exp() for k in octaves]).sum(dim=0)


@full_precision
def linear_mmd(kernel: Tensor) -> Tensor:
    """Linear-time estimate of MMD² from a kernel over B source rows, then B target rows (as DCAN has it).

    With i⁺ = i + 1 modulo B: mean of K(s_i, s_i⁺) + K(t_i, t_i⁺) - K(s_i, t_i⁺) - K(s_i⁺, t_i).
    """
    s = torch.arange(len(kernel) // 2, device=kernel.device)
    t, s_next = s + len(s), s.roll(-1)
    t_next = s_next + len(s)
    return (kernel[s, s_next] + kernel[t, t_next] - kernel[s, t_next] - kernel[s_next, t]).mean()


@full_precision
def class_mmd(kernel: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """MMD² per class between weighted samples: ‖Σ_i a_ic φ(s_i) - Σ_j b_jc φ(t_j)‖². → [C].

    `kernel` runs over B source rows, then T target rows; `source` [B, C] and `target` [T, C] hold
    memberships, brought to column sums of 1 here. A class without members on one side gives 0.
    """
    sums = source.sum(dim=0), target.sum(dim=0)
    a, b = (m / torch.where(s > 0, s, torch.ones_like(s)) for m, s in zip((source, target), sums))
    signed = torch.cat([a, -b])
    distances = (signed * (kernel @ signed)).sum(dim=0)
    return distances * ((sums[0] > 0) & (sums[1] > 0))


@full_precision
def transport_cost(
    source: Tensor, target: Tensor, labels: Tensor, logits: Tensor, feature_weight: float, label_weight: float
) -> Tensor:
    """M_ij = η1‖f_i - f_j‖² - η2 log p_j[y_i] between source rows i and target rows j. → [B, T]."""
    distances = torch.cdist(source, target, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return feature_weight * distances - label_weight * logits.log_softmax(dim=1)[:, labels].T
