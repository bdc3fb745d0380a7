"""Losses: values worked out by hand, properties, saturation, precision."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from ba3us import losses

LN2 = math.log(2)
FORMS = ("released", "paper")


def random_case(seed, n=12, classes=5, spread=3.0, dtype=torch.float64):
    """Logits, labels and class weights m of mean about 1."""
    g = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(n, classes, generator=g, dtype=dtype)
    labels = torch.randint(classes, (n,), generator=g)
    m = torch.rand(classes, generator=g, dtype=dtype) + 0.1
    return logits, labels, m


def adversarial(source, target, borrowed, w_source, w_target, w_borrowed, form="released"):
    """The balanced adversarial loss, domain by domain."""
    scores, weights = torch.cat([source, target, borrowed]), torch.cat([w_source, w_target, w_borrowed])
    sizes = len(source), len(target), len(borrowed)
    return losses.balanced_adversarial_loss(scores, weights, sizes, form)


def of_probabilities(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


# --- entropy and its weights ---


def test_entropy_by_hand():
    value = losses.entropy(of_probabilities([0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]))
    # 1/2·ln 2 + 1/2·ln 4 = 3/2·ln 2; the released epsilon moves it by 3e-7
    assert value.tolist() == pytest.approx([1.5 * LN2, math.log(3)], abs=1e-6)
    exact = losses.entropy(of_probabilities([0.5, 0.25, 0.25]), eps=0.0)
    assert exact.item() == pytest.approx(1.5 * LN2, abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(-50, 50))
def test_entropy_is_bounded_and_blind_to_shift_and_order(seed, classes, shift):
    logits, _, _ = random_case(seed, classes=classes)
    h = losses.entropy(logits)
    assert ((h >= -1e-6) & (h <= math.log(classes) + 1e-6)).all()
    torch.testing.assert_close(losses.entropy(logits + shift), h)
    torch.testing.assert_close(losses.entropy(logits.flip(1)), h)


def test_entropy_weights_by_hand():
    value = losses.entropy_weights(torch.tensor([0.0, LN2, 1e4]))
    assert value.tolist() == pytest.approx([2.0, 1.5, 1.0])


# --- weighted cross-entropy ---


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_cross_entropy_is_torchs_and_blind_to_the_scale_of_the_weights(seed, scale):
    logits, labels, m = random_case(seed)
    expected = F.cross_entropy(logits, labels, weight=m)  # an independent implementation of Σ m·CE / Σ m
    value = losses.weighted_cross_entropy(logits, labels, scale * m[labels])
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)


def test_cross_entropy_as_printed_divides_by_the_number_of_rows():
    logits = of_probabilities([0.5, 0.5], [0.25, 0.75], [0.8, 0.2])
    labels, m = torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    terms = (1 * math.log(2), 2 * math.log(4), 0.5 * math.log(5))
    paper = losses.weighted_cross_entropy(logits, labels, m, "paper")
    assert paper.item() == pytest.approx(sum(terms) / 3)
    released = losses.weighted_cross_entropy(logits, labels, m)
    assert released.item() == pytest.approx(sum(terms) / 3.5, rel=1e-6)


# --- adversarial term ---


def test_adversarial_released_by_hand():
    """B = 2, T = 1, K = 1: two shared normalisers, then a weighted mean."""
    source, target, borrowed = torch.tensor([1.0, -0.5]), torch.tensor([0.25]), torch.tensor([2.0])
    w_s, w_t, w_b = torch.tensor([1.5, 0.5]), torch.tensor([1.7]), torch.tensor([2.0])

    def softplus(z):
        return math.log1p(math.exp(z))

    # source and borrowed weigh 1 + 1/2 together: 1.5·(1.5, 0.5, 2)/4; the target 1; all over 2.5
    a = [1.5 * 1.5 / 4, 1.5 * 0.5 / 4, 1.0, 1.5 * 2 / 4]
    bce = [softplus(-1.0), softplus(0.5), softplus(0.25), softplus(2.0)]
    expected = sum(x * y for x, y in zip(a, bce)) / 2.5
    value = adversarial(source, target, borrowed, w_s, w_t, w_b)
    assert value.item() == pytest.approx(expected, rel=1e-6)
    # as printed: mean over source, mean over target, ρ·mean over borrowed with ρ = K/B
    printed = (1.5 * bce[0] + 0.5 * bce[1]) / 2 + 1.7 * bce[2] + 0.5 * 2.0 * bce[3]
    value = adversarial(source, target, borrowed, w_s, w_t, w_b, "paper")
    assert value.item() == pytest.approx(printed, rel=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 9))
def test_adversarial_of_a_blind_discriminator_is_log_two(seed, n, k):
    """The released weights always sum to one, whatever they are."""
    g = torch.Generator().manual_seed(seed)
    w = [torch.rand(size, generator=g) + 0.05 for size in (n, n, k)]
    zeros = [torch.zeros(size) for size in (n, n, k)]
    assert adversarial(*zeros, *w).item() == pytest.approx(LN2, rel=1e-5)
    printed = LN2 * (w[0].mean() + w[1].mean() + w[2].sum() / n)
    assert adversarial(*zeros, *w, "paper").item() == pytest.approx(printed.item(), rel=1e-5)


def test_adversarial_with_equal_weights_and_nothing_borrowed_is_the_mean_of_dann():
    """methods.md, unit check: K = 0, equal entropies, uniform m."""
    g = torch.Generator().manual_seed(0)
    source, target, none = torch.randn(7, generator=g), torch.randn(7, generator=g), torch.zeros(0)
    expected = F.binary_cross_entropy_with_logits(
        torch.cat([source, target]), torch.cat([torch.ones(7), torch.zeros(7)])
    )
    m, w = 0.125, 1.3
    value = adversarial(source, target, none, torch.full((7,), m * w), torch.full((7,), w), none)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("k", [1, 3])
def test_borrowed_share_is_rho_of_two_plus_rho(k):
    sure = torch.full((6,), 60.0)
    ones = torch.ones(6)
    value = adversarial(sure, -sure, torch.zeros(k), ones, ones, torch.ones(k))
    rho = k / 6
    assert value.item() == pytest.approx(LN2 * rho / (2 + rho), rel=1e-5)


@given(st.integers(0, 10_000), st.floats(1e-2, 1e2))
def test_adversarial_is_blind_to_the_scale_of_class_weights(seed, scale):
    g = torch.Generator().manual_seed(seed)
    d = [torch.randn(n, generator=g, dtype=torch.float64) for n in (6, 6, 2)]
    w = [torch.rand(n, generator=g, dtype=torch.float64) + 0.1 for n in (6, 6, 2)]
    expected = adversarial(*d, *w)
    value = adversarial(*d, scale * w[0], w[1], scale * w[2])
    torch.testing.assert_close(value, expected)


def test_adversarial_normalisers_are_detached():
    """∂L/∂w_i = (1+ρ)·BCE_i / (Σw·Σa) exactly; with live normalisers a constant factor would cancel."""
    w = torch.ones(4, dtype=torch.float64, requires_grad=True)
    d = torch.zeros(4, dtype=torch.float64)
    none = torch.zeros(0, dtype=torch.float64)
    adversarial(d, d, none, w, torch.ones(4, dtype=torch.float64), none).backward()
    assert w.grad.tolist() == pytest.approx([LN2 / 4 / 2] * 4, rel=1e-6)


def test_domain_loss_puts_source_at_one():
    z = torch.tensor([3.0, -3.0])
    assert losses.domain_loss(z, True).tolist() == pytest.approx(
        [math.log1p(math.exp(-3)), math.log1p(math.exp(3))]
    )
    assert losses.domain_loss(z, False).tolist() == pytest.approx(
        [math.log1p(math.exp(3)), math.log1p(math.exp(-3))]
    )


# --- complement entropy ---


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        # r = (3/4, 1/4): (3/4·ln 3/4 + 1/4·ln 1/4) / ln 2
        ([0.6, 0.3, 0.1], (0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / LN2),
        ([0.6, 0.2, 0.2], -1.0),
    ],
)
def test_complement_entropy_unit_checks(p, expected):
    logits, label = of_probabilities(p), torch.tensor([0])
    value = losses.complement_entropy(logits, label, torch.ones(1, dtype=torch.float64))
    assert value.item() == pytest.approx(expected, abs=1e-5)
    assert round(expected, 4) in (-0.8113, -1.0)


@pytest.mark.parametrize("xi", [0.0, 0.5, 1.0, 2.0])
def test_complement_entropy_weighs_rows_by_m_and_confidence(xi):
    logits = of_probabilities([0.6, 0.3, 0.1], [0.2, 0.4, 0.4])
    labels, m = torch.tensor([0, 0]), torch.tensor([0.7, 0.2], dtype=torch.float64)
    s = [(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / LN2, -1.0]
    v = [0.7 * 0.4**xi, 0.2 * 0.8**xi]
    released = losses.complement_entropy(logits, labels, m, xi)
    assert released.item() == pytest.approx((v[0] * s[0] + v[1] * s[1]) / sum(v), abs=1e-5)
    paper = losses.complement_entropy(logits, labels, m, xi, "paper")
    assert paper.item() == pytest.approx((v[0] * s[0] + v[1] * s[1]) / 2, abs=1e-5)


def test_complement_entropy_gradient_through_the_confidence():
    """Printed, (1 - p_a)^ξ carries gradient; released, it is a constant. Both against finite differences."""
    logits = torch.tensor([[0.3, -0.2, 0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    label, one = torch.tensor([2]), torch.ones(1, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: losses.complement_entropy(z, label, one, 1.0, "paper"), logits)
    # of a single row, the released weights cancel: ξ can't matter, neither in value nor in gradient
    grads = []
    for xi in (0.0, 2.0):
        (grad,) = torch.autograd.grad(losses.complement_entropy(logits, label, one, xi), logits)
        grads.append(grad)
    torch.testing.assert_close(grads[0], grads[1])
    (printed,) = torch.autograd.grad(losses.complement_entropy(logits, label, one, 2.0, "paper"), logits)
    assert not torch.allclose(printed, grads[1])
    # the direction of p_a: as printed the loss falls with the mass of the wrong classes
    assert printed[0, 2] > 0


@given(st.integers(0, 10_000), st.integers(3, 8), st.floats(1e-3, 1e3), st.sampled_from([0.0, 0.5, 1.0]))
def test_complement_entropy_is_bounded_and_blind_to_the_scale_of_weights(seed, classes, scale, xi):
    logits, labels, m = random_case(seed, classes=classes)
    value = losses.complement_entropy(logits, labels, m[labels], xi)
    assert -1 - 1e-5 <= value.item() <= 0
    torch.testing.assert_close(losses.complement_entropy(logits, labels, scale * m[labels], xi), value)


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_with_fewer_than_three_classes_there_is_nothing_to_flatten(classes, form):
    logits = torch.randn(4, classes, requires_grad=True)
    value = losses.complement_entropy(logits, torch.zeros(4, dtype=torch.long), torch.ones(4), form=form)
    value.backward()
    assert value.item() == 0 and logits.grad.abs().sum() == 0


# --- zero weights, saturation, precision ---


def test_weights_that_sum_to_zero_give_zero_and_finite_gradients():
    logits, labels, _ = random_case(0)
    zero = torch.zeros(len(labels), dtype=logits.dtype)
    for form in FORMS:
        for loss in (losses.weighted_cross_entropy, losses.complement_entropy):
            z = logits.clone().requires_grad_()
            value = loss(z, labels, zero, form=form)
            value.backward()
            assert value.item() == 0 and z.grad.abs().max() == 0
    d = torch.randn(5, requires_grad=True)
    none = torch.zeros(0)
    value = adversarial(d, d.detach(), none, torch.zeros(5), torch.ones(5), none)
    value.backward()
    expected = F.softplus(d.detach()).mean()  # the target's half is left, and weighs all
    torch.testing.assert_close(value.detach(), expected)
    assert d.grad.abs().max() == 0


def saturated(size, n=16, classes=5):
    """Rows of ±size, single peaks, ties, the true class on top and at the bottom."""
    g = torch.Generator().manual_seed(1)
    signs = torch.randint(2, (n, classes), generator=g) * 2.0 - 1
    signs[0], signs[1], signs[2] = 1, -1, torch.tensor([1.0] + [-1] * (classes - 1))
    signs[3] = -signs[2]
    labels = torch.randint(classes, (n,), generator=g)
    labels[2:4] = 0
    return size * signs, labels


@pytest.mark.parametrize("size", [40.0, 1e4])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("autocast", [False, True])
def test_saturated_logits_give_finite_losses_and_gradients(size, form, autocast):
    signs, labels = saturated(size)
    scores = torch.tensor([size, -size] * 8)
    z, d = signs.requires_grad_(), scores.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        half = torch.bfloat16 if autocast else torch.float32
        logits, domain = z.to(half), d.to(half)
        w = losses.entropy_weights(losses.entropy(logits))
        terms = {
            "entropy": losses.entropy(logits).mean(),
            "classification": losses.weighted_cross_entropy(logits, labels, w, form),
            "alignment": adversarial(domain[:6], domain[6:12], domain[12:], w[:6], w[6:12], w[12:], form),
            **{
                f"uncertainty {xi}": losses.complement_entropy(logits, labels, w.detach(), xi, form)
                for xi in (0.0, 0.5, 1.0, 10.0)
            },
        }
    for name, value in terms.items():
        assert value.dtype == torch.float32, name
        assert value.isfinite(), name
        grads = torch.autograd.grad(value, (z, d), retain_graph=True, allow_unused=True)
        assert all(g.isfinite().all() for g in grads if g is not None), name
        assert any(g is not None for g in grads), name


def test_saturated_rows_on_the_true_class_carry_no_uncertainty_and_wrong_ones_do():
    right = torch.full((1, 4), -1e4)
    right[0, 1] = 1e4
    one = torch.ones(1)
    assert losses.complement_entropy(right, torch.tensor([1]), one).item() == pytest.approx(0, abs=1e-6)
    flat = torch.zeros(1, 4)
    flat[0, 1] = -1e4  # all wrong classes alike: the flattest there is
    assert losses.complement_entropy(flat, torch.tensor([1]), one).item() == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("xi", [1.0, 10.0, 50.0])
def test_uncertainty_of_a_batch_of_certain_rows_is_finite(xi):
    """(1e-7)^ξ underflows for a large ξ: the batch then weighs nothing."""
    logits, labels = 1e4 * torch.eye(4), torch.arange(4)
    z = logits.requires_grad_()
    value = losses.complement_entropy(z, labels, torch.ones(4), xi)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-6) and z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_raised_to_float32(dtype, autocast):
    """The same numbers as float32 arithmetic on the rounded inputs, and not half-precision arithmetic."""
    logits, labels, m = random_case(3, dtype=torch.float32)
    logits, weights = logits.to(dtype), m[labels].to(dtype)
    d = logits[:, 0]
    calls = (
        lambda z, w, d: losses.entropy(z),
        lambda z, w, d: losses.entropy_weights(d.abs()),
        lambda z, w, d: losses.weighted_cross_entropy(z, labels, weights=w),
        lambda z, w, d: losses.domain_loss(d, True),
        lambda z, w, d: losses.balanced_adversarial_loss(d, w, (5, 5, len(d) - 10)),
        lambda z, w, d: losses.complement_entropy(z, labels, w),
        lambda z, w, d: losses.outer_product(z, w[:, None]),
    )
    for number, call in enumerate(calls):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            value = call(logits, weights, d)
        assert value.dtype == torch.float32, number
        torch.testing.assert_close(value, call(logits.float(), weights.float(), d.float()), rtol=0, atol=0)


def test_matrix_products_inside_a_loss_are_float32_under_autocast():
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))

    @losses.full_precision
    def gram(x):
        return x @ x.T

    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = gram(x)
    assert torch.equal(value, x @ x.T) and not torch.equal(value, (x @ x.T).bfloat16().float())


def test_losses_leave_autocast_as_it_was():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses.entropy(torch.zeros(2, 3))
        assert torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


# --- conditional input ---


def test_outer_product_is_class_major_and_detaches_the_probabilities():
    f = torch.tensor([[1.0, 2.0]], requires_grad=True)
    p = torch.tensor([[0.5, 0.25, 0.25]], requires_grad=True)
    value = losses.outer_product(f, p)
    assert value.tolist() == [[0.5, 1.0, 0.25, 0.5, 0.25, 0.5]]
    value.sum().backward()
    assert f.grad.tolist() == [[1.0, 1.0]]
    assert p.grad is None


def test_examples_in_docstrings():
    result = doctest.testmod(losses)
    assert result.attempted >= 16 and result.failed == 0
