"""``form="paper"``: every printed formula, with the expected value worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ba3us.methods.base import DomainOutputs, Outputs, Step
from toys import CLASSES, blobs, build, trainer

M = (0.5, 0.3, 0.15, 0.05)  # class weights, summing to 1; printed with mean 1, they are 4·m


def rows(probabilities, labels=None):
    p = torch.tensor(probabilities, dtype=torch.float64)
    y = None if labels is None else torch.tensor(labels)
    return DomainOutputs(torch.zeros(len(p), 5, dtype=torch.float64), p.log().requires_grad_(), None, y)


SOURCE = rows([[0.7, 0.1, 0.1, 0.1], [0.2, 0.4, 0.3, 0.1]], [0, 2])
TARGET = rows([[0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01], [0.5, 0.5, 1e-12, 1e-12]])
BORROWED = rows([[0.1, 0.1, 0.1, 0.7]], [1])


def paper(beta=5.0, **options):
    method = build(form="paper", batch_size=2, beta=beta, discriminator_dropout=0.0, **options)[1].double()
    method.class_weights.copy_(torch.tensor(M))
    return method


def terms(**options):
    return paper(**options).losses(Outputs(SOURCE, TARGET, BORROWED), Step(0, 10))


def entropy(p):
    return -sum(x * math.log(x) for x in p)


def test_classification_is_divided_by_the_rows_with_weights_of_mean_one():
    """Eq. 4: (1/n_s) Σ m(y)·l_ce with m(0) = 4·0.5 and m(2) = 4·0.15."""
    expected = (2.0 * -math.log(0.7) + 0.6 * -math.log(0.3)) / 2
    assert terms()["classification"].item() == pytest.approx(expected, rel=1e-6)


def test_equal_class_weights_make_it_the_plain_mean():
    method = paper()
    method.class_weights.fill_(1 / CLASSES)
    value = method.losses(Outputs(SOURCE, TARGET, BORROWED), Step(0, 10))["classification"]
    assert value.item() == pytest.approx(-(math.log(0.7) + math.log(0.3)) / 2, abs=1e-9)


def test_entropy_term():
    """Eq. 3: α·(1/n_t) Σ H."""
    h = (math.log(4), entropy([0.97, 0.01, 0.01, 0.01]), math.log(2))
    assert terms()["entropy"].item() == pytest.approx(0.1 * sum(h) / 3, abs=1e-6)


@pytest.mark.parametrize("xi", [0.0, 1.0, 2.0])
def test_uncertainty_is_neither_detached_nor_normalised_over_the_batch(xi):
    """Eq. 6: (1/(n_s log(K-1))) Σ m(y)·(1-p_a)^ξ Σ r log r."""
    first = 0.3**xi * -math.log(3)  # r = (1/3, 1/3, 1/3)
    r = (0.2 / 0.7, 0.4 / 0.7, 0.1 / 0.7)
    second = 0.7**xi * sum(x * math.log(x) for x in r)
    expected = 5.0 * (2.0 * first + 0.6 * second) / (2 * math.log(3))
    assert terms(xi=xi)["uncertainty"].item() == pytest.approx(expected, abs=1e-5)


def test_uncertainty_gradient_flows_through_the_confidence():
    """On a row whose wrong classes are alike, Σ r log r can't move: only (1-p_a)^ξ carries a gradient.

    d/dz_a of β·m·(1-p_a)·(-1)/n_s = β·m·p_a(1-p_a)/n_s = 5·2·0.7·0.3/2.
    """
    logits = SOURCE.logits
    (printed,) = torch.autograd.grad(terms()["uncertainty"], logits)
    assert printed[0, 0].item() == pytest.approx(5 * 2.0 * 0.7 * 0.3 / 2, rel=1e-5)
    released = build(form="released", batch_size=2, beta=5.0)[1].double()
    released.class_weights.copy_(torch.tensor(M))
    value = released.losses(Outputs(SOURCE, TARGET, BORROWED), Step(0, 10))["uncertainty"]
    assert torch.autograd.grad(value, logits)[0][0].abs().max() < 1e-5


def test_uncertainty_dies_out_as_the_true_class_becomes_sure_and_the_released_one_does_not():
    sure = rows([[1 - 3e-3, 1e-3, 1e-3, 1e-3]] * 2, [0, 0])
    printed = paper(beta=1.0).losses(Outputs(sure, TARGET, BORROWED), Step(0, 10))["uncertainty"]
    assert printed.item() == pytest.approx(2.0 * 3e-3 * -1, rel=1e-3)
    released = build(beta=1.0, batch_size=2)[1].double()
    value = released.losses(Outputs(sure, TARGET, BORROWED), Step(0, 10))["uncertainty"]
    assert value.item() == pytest.approx(-1, abs=1e-3)


def test_alignment_is_three_means_with_rho():
    """Eq. 5, with a discriminator that says 1/2 to all: -log D = -log(1-D) = log 2."""
    method = paper()
    for parameter in method.discriminator.parameters():
        torch.nn.init.zeros_(parameter)
    w = [1 + math.exp(-entropy([x for x in p if x > 1e-9])) for p in (
        [0.7, 0.1, 0.1, 0.1], [0.2, 0.4, 0.3, 0.1],
        [0.25] * 4, [0.97, 0.01, 0.01, 0.01], [0.5, 0.5],
        [0.1, 0.1, 0.1, 0.7],
    )]  # fmt: skip
    source = (w[0] * 2.0 + w[1] * 0.6) / 2  # m(0) = 2, m(2) = 0.6
    target = (w[2] + w[3] + w[4]) / 3
    borrowed = 0.5 * w[5] * 1.2  # ρ = K/B = 1/2, one borrowed row with m(1) = 1.2
    value = method.losses(Outputs(SOURCE, TARGET, BORROWED), Step(0, 10))["alignment"]
    assert value.item() == pytest.approx(math.log(2) * (source + target + borrowed), rel=1e-5)


def test_borrowed_count_decays_linearly_with_progress():
    """The text's ρ = ρ0·(1 - p), p the progress, at every update rather than per interval."""
    method = build(form="paper", batch_size=40, rho=0.25, steps=100, refresh_every=50)[1]
    counts = [method.borrow(Step(i, 100)) for i in (0, 10, 20, 50, 75, 90, 100)]
    assert counts == [10, 9, 8, 5, 2, 1, 0]  # 2.5 and 7.5 go to the even neighbour


def test_learning_rate_falls_with_progress_from_a_hundredth():
    """η_p = 0.01·(1 + 10 p)^(-3/4) for new layers, as the loop writes it down; released, by updates."""
    source, target, _ = blobs()
    printed = trainer(form="paper", steps=20).fit(source, target).history["lr"]
    assert printed.tolist() == pytest.approx([0.01 * (1 + 10 * i / 20) ** -0.75 for i in range(20)])
    released = trainer(steps=20).fit(source, target).history["lr"]
    assert released.tolist() == pytest.approx([0.01 * (1 + 0.001 * i) ** -0.75 for i in range(20)])


def test_a_whole_run_as_printed_stays_finite_and_borrows_less_and_less():
    source, target, _ = blobs()
    history = trainer(form="paper", steps=12, batch_size=8).fit(source, target).history
    assert history["loss"].map(math.isfinite).all()
    assert history["borrowed"].tolist() == [round(8 * 0.25 * (1 - i / 12)) for i in range(12)]
