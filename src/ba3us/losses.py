"""The losses of partial domain adaptation: pure functions, tensors in, tensors out.

In shapes, B counts source samples, T target samples, K borrowed samples, n any samples, C classes, d features.
Every function computes in float32 at least, also under autocast, and stays finite at saturated logits.

Where the BA³US paper prints one formula and its released code computes another, ``form`` chooses:
``"released"`` (the program, which most likely produced the published numbers) or ``"paper"``.
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


def _normalised(weights: Tensor) -> Tensor:
    """Weights divided by their sum; all zero when that is zero."""
    return weights / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


@full_precision
def entropy(logits: Tensor, eps: float = _EPS_ENTROPY, floor: float = 0.0) -> Tensor:
    """Shannon entropy of each prediction: H = -Σ_c p_c log(p_c + eps), p = softmax(logits).

    With a `floor`, entries p_c below it are left out and there is no eps (PADA, SAN, AFN, DCAN).

    Shape: logits [n, C] → [n].

    >>> entropy(torch.zeros(1, 4))  # log 4
    tensor([1.3863])
    """
    p = logits.softmax(dim=1)
    if floor > 0:
        p = torch.where(p >= floor, p, torch.ones_like(p))  # 1·log 1 adds nothing, nor a gradient
        return -(p * p.log()).sum(dim=1)
    return -(p * (p + eps).log()).sum(dim=1)


@full_precision
def entropy_weights(entropies: Tensor) -> Tensor:
    """w = 1 + exp(-H): confident samples count up to twice as much as uncertain ones.

    Shape: entropies [n] → [n].

    >>> entropy_weights(torch.tensor([0.0, 100.0]))
    tensor([2., 1.])
    """
    return 1 + (-entropies).exp()


@full_precision
def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor, form: Form | None = None, smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy with sample weights m(y) (L_cls^w of Eq. 4); 0 when all weights are 0.

    The weighted sum is divided by the sum of the weights, so that their scale does not matter. BA³US's
    ``released`` form adds 1e-8 to that sum; its ``paper`` form divides by the number of samples instead.
    `smoothing` spreads that proportion of each label evenly over all classes.

    Shape: logits [n, C], labels [n], weights [n] → scalar.

    >>> logits, labels = torch.tensor([[0.0, 0.0], [9.0, -9.0]]), torch.tensor([0, 1])
    >>> weighted_cross_entropy(logits, labels, torch.tensor([1.0, 0.0]))  # of the first sample alone: log 2
    tensor(0.6931)
    """
    losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    if form == "paper":
        return (weights * losses).mean()
    normalised = weights / (_EPS_SUM + weights.sum()) if form == "released" else _normalised(weights)
    return (normalised * losses).sum()


@full_precision
def domain_loss(scores: Tensor, is_source: bool) -> Tensor:
    """Binary cross-entropy of discriminator logits; source = 1, target and borrowed = 0.

    Shape: scores [n] → [n].

    >>> domain_loss(torch.tensor([0.0, -2.0]), is_source=True)
    tensor([0.6931, 2.1269])
    """
    signed = -scores if is_source else scores
    return F.softplus(signed, threshold=40.0)  # -log σ(-x); beyond 40 it is x to the last bit of float64


@full_precision
def adversarial_loss(
    source: Tensor,
    target: Tensor,
    source_weights: Tensor | None = None,
    target_weights: Tensor | None = None,
) -> Tensor:
    """Domain loss of a discriminator: ½·(mean of w·BCE over the source + the same over the target).

    Shape: source [B] and target [T] discriminator logits, weights alike → scalar.

    >>> adversarial_loss(torch.zeros(3), torch.zeros(2))  # of guessing: log 2
    tensor(0.6931)
    """
    sides = (domain_loss(source, True), source_weights), (domain_loss(target, False), target_weights)
    of_source, of_target = ((values if w is None else w * values).mean() for values, w in sides)
    return 0.5 * (of_source + of_target)


@full_precision
def balanced_adversarial_loss(
    scores: Tensor, weights: Tensor, sizes: tuple[int, int, int], form: Form = "released"
) -> Tensor:
    """L_adv^ba (Eq. 5), to be minimised by D, with borrowed source samples on the target's side.

    Parameters
    ----------
    scores : Tensor [B + T + K]
        Discriminator logits of source, target and borrowed samples.
    weights : Tensor [B + T + K]
        w(x)·m(y) for source and borrowed samples, w(x) for target samples. Not detached: gradients may flow.
    sizes : (B, T, K)
        K may be 0 (then it is L_adv^e, Eq. 2).
    form : {"released", "paper"}
        ``paper`` is the sum of the three means, with ρ = K/B. ``released`` is a weighted mean over all samples:
        source and borrowed weights have one normaliser and weigh 1 + ρ together, the target weighs 1. Every
        normaliser is detached.

    >>> balanced_adversarial_loss(torch.zeros(7), torch.ones(7), (3, 3, 1))  # of guessing: log 2
    tensor(0.6931)
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

    With a the true class, r_j = p_j / (1 - p_a) and s = Σ_{j≠a} r_j log r_j / log(C - 1), it is the mean of s
    under the weights m(y)·(1 - p_a)^ξ; ξ = 0 gives the plain complement entropy. With fewer than three
    classes there is nothing to flatten and it is 0.

    ``released`` detaches the weights and divides by their sum. ``paper`` divides by the number of samples and
    lets the gradient through (1 - p_a)^ξ. The gradient through p_a inside r flows in both.

    The released epsilons stay: a sample whose wrong-class mass is far below 1e-7 counts for nothing. That
    mass is summed over the wrong classes, which float32 can hold where 1 - p_a is rounding noise.

    Shape: logits [n, C], labels [n], weights [n] → scalar.

    >>> complement_entropy(torch.zeros(1, 3), torch.tensor([0]), torch.ones(1)).round(decimals=3)  # flat
    tensor(-1.)
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
        uncertainty = mass.squeeze(1)
        if xi != 1:  # (1 - p_a)^ξ of a confident batch underflows for a large ξ
            uncertainty = _normalised(uncertainty**xi)
        normalised = _normalised(weights * uncertainty) / math.log(classes - 1)
    return (normalised * flatness).sum()


@full_precision
def outer_product(features: Tensor, probabilities: Tensor) -> Tensor:
    """Input vec(p ⊗ f) of a conditional discriminator, with p detached, class-major.

    Shape: features [n, d], probabilities [n, C] → [n, C·d].

    >>> outer_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([[0.5000, 1.0000, 0.5000, 1.0000]])
    """
    return (probabilities.detach()[:, :, None] * features[:, None, :]).flatten(1)


@full_precision
def hard_norm_loss(features: Tensor, radius: float) -> Tensor:
    """HAFN: (mean ‖f‖ - radius)², which draws the mean feature norm to a common radius.

    Shape: features [n, d] → scalar.

    >>> hard_norm_loss(torch.tensor([[3.0, 4.0]]), radius=25.0)
    tensor(400.)
    """
    return (features.norm(dim=1).mean() - radius) ** 2


@full_precision
def stepwise_norm_loss(features: Tensor, step: float) -> Tensor:
    """SAFN: mean (‖f‖ - (‖f‖ detached + step))²; its value is step², its gradient pulls every norm outward.

    Shape: features [n, d] → scalar.

    >>> stepwise_norm_loss(torch.tensor([[3.0, 4.0]]), step=0.5)
    tensor(0.2500)
    """
    norms = features.norm(dim=1)
    return ((norms - (norms.detach() + step)) ** 2).mean()


@full_precision
def class_confusion(logits: Tensor, temperature: float) -> Tensor:
    """MCC: how much predictions confuse pairs of classes, (Σ M - tr M)/C, M = pᵀ diag(w) p with rows of sum 1.

    p = softmax(logits/T); w = 1 + e^(-H), detached and divided by its mean. A class without any probability
    counts for nothing.

    Shape: logits [n, C] → scalar.

    >>> class_confusion(torch.zeros(2, 4), temperature=2.5)  # every class is confused with the three others
    tensor(0.7500)
    """
    p = (logits / temperature).softmax(dim=1)
    w = entropy_weights(entropy(logits / temperature, eps=1e-5)).detach()
    confusion = p.T @ (p * (w / w.mean())[:, None])
    tiny = torch.finfo(p.dtype).eps ** 2
    confusion = confusion / confusion.sum(dim=1, keepdim=True).clamp(min=tiny)
    return (confusion.sum() - confusion.trace()) / p.shape[1]


@full_precision
def disagreement(logits: Tensor, other: Tensor) -> Tensor:
    """TWINs: mean over samples of Σ_c |p_c - p'_c| between the predictions of two networks, in [0, 2].

    Shape: logits [n, C], other [n, C] → scalar.

    >>> disagreement(torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]]))
    tensor(2.)
    """
    return (logits.softmax(dim=1) - other.softmax(dim=1)).abs().sum(dim=1).mean()


@full_precision
def gaussian_kernels(
    x: Tensor, bandwidth: float | None = None, octaves: tuple[int, ...] = (-2, -1, 0, 1, 2)
) -> Tensor:
    """K(x, y) = Σ_k exp(-‖x - y‖²/(b·2^k)) between all samples.

    b is `bandwidth`, or the mean squared distance over all pairs of different samples, detached.

    Shape: x [n, d] → [n, n].

    >>> gaussian_kernels(torch.tensor([[0.0], [1.0]]), bandwidth=1.0, octaves=(0,))
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]])
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    n = len(x)
    b = distances.detach().sum() / max(1, n * n - n) if bandwidth is None else distances.new_tensor(bandwidth)
    b = torch.where(b > 0, b, torch.ones_like(b))
    return torch.stack([(-distances / (b * 2.0**k)).exp() for k in octaves]).sum(dim=0)


@full_precision
def linear_mmd(kernel: Tensor) -> Tensor:
    """Linear-time estimate of MMD² from a kernel over B source samples, then B target samples (as in DCAN).

    With i⁺ = i + 1 modulo B: mean of K(s_i, s_i⁺) + K(t_i, t_i⁺) - K(s_i, t_i⁺) - K(s_i⁺, t_i).

    Shape: kernel [2B, 2B] → scalar.

    >>> linear_mmd(torch.ones(4, 4))  # the same distribution
    tensor(0.)
    """
    s = torch.arange(len(kernel) // 2, device=kernel.device)
    t, s_next = s + len(s), s.roll(-1)
    t_next = s_next + len(s)
    return (kernel[s, s_next] + kernel[t, t_next] - kernel[s, t_next] - kernel[s_next, t]).mean()


@full_precision
def class_mmd(kernel: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """MMD² per class between weighted samples: ‖Σ_i a_ic φ(s_i) - Σ_j b_jc φ(t_j)‖².

    `kernel` covers B source samples, then T target samples. `source` and `target` hold memberships, which are
    normalised to column sums of 1 here. A class without members in one domain gives 0.

    Shape: kernel [B + T, B + T], source [B, C], target [T, C] → [C].

    >>> class_mmd(torch.eye(2), torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    tensor([2., 0.])
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
    """M_ij = η1‖f_i - f_j‖² - η2 log p_j[y_i] between source samples i and target samples j.

    Shape: features source [B, d] and target [T, d], labels [B], target logits [T, C] → [B, T].

    >>> transport_cost(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0]), torch.zeros(1, 2), 1.0, 1.0)
    tensor([[2.6931]])
    """
    distances = torch.cdist(source, target, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return feature_weight * distances - label_weight * logits.log_softmax(dim=1)[:, labels].T
