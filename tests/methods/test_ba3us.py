"""The BA³US family: which terms a system has, where its weights go, what its gradients do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from ba3us import losses, methods
from ba3us.data import Source, Target
from ba3us.methods.base import DomainOutputs, Outputs, Step
from ba3us.nn import reverse_gradient
from ba3us.training import Callback
from toys import CLASSES, WIDTH, build, trainer

FAMILY = [e.name for e in methods.entries() if e.method is methods.get("ba3us").method]
STEP = Step(3, 10)


def step_outputs(width=5, b=6, t=6, k=2, seed=0, dtype=torch.float64):
    """Leaves as if from a network: features and logits of source, target and borrowed rows."""
    g = torch.Generator().manual_seed(seed)

    def domain(n, labelled):
        features = torch.randn(n, width, generator=g, dtype=dtype).requires_grad_()
        logits = torch.randn(n, CLASSES, generator=g, dtype=dtype).mul(2).requires_grad_()
        labels = torch.randint(CLASSES, (n,), generator=g) if labelled else None
        return DomainOutputs(features, logits, torch.arange(n), labels)

    return Outputs(domain(b, True), domain(t, False), domain(k, True))


def made(name="ba3us", **options):
    options = {"gradual_weights": False, **options}  # with them: test_gradual_weights.py
    method = build(name, discriminator_dropout=0.0, **options)[1].double()
    method.class_weights.copy_(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    return method


def test_the_table_of_the_family():
    """methods.md, section 3.4, and the closed-set and outer-product variants."""
    seen = {
        name: (c.rho, c.weight_source, c.weight_alignment, c.beta, c.conditional)
        for name in FAMILY
        for c in [methods.get(name).options()]
    }
    assert seen == {
        "e-dann": (0.0, True, False, 0.0, False),
        "aus": (0.0, True, False, 5.0, False),
        "baa": (0.25, True, True, 0.0, False),
        "ba3us": (0.25, True, True, 5.0, False),
        "ba3us-gradual": (0.25, True, True, 1.0, False),
        "baa+cdan": (0.25, True, True, 0.0, True),
        "ba3us+cdan": (0.25, True, True, 5.0, True),
        "baa-closed": (0.25, False, False, 0.0, False),
        "ba3us-closed": (0.25, False, False, 5.0, False),
        "baa+cdan-closed": (0.25, False, False, 0.0, True),
        "ba3us+cdan-closed": (0.25, False, False, 5.0, True),
    }


@pytest.mark.parametrize("name", FAMILY)
def test_scaling_the_class_weights_changes_no_loss_and_no_gradient(name):
    outputs, method = step_outputs(), made(name)
    leaves = [t for d in outputs.domains for t in (d.features, d.logits)]

    def terms_and_grads():
        terms = method.losses(outputs, STEP)
        return terms, torch.autograd.grad(sum(terms.values()), leaves, allow_unused=True)

    before, grads = terms_and_grads()
    method.class_weights.mul_(37.5)
    after, scaled = terms_and_grads()
    for key in before:
        torch.testing.assert_close(after[key], before[key], rtol=1e-6, atol=1e-9)
    for one, other in zip(grads, scaled):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", FAMILY)
def test_initial_class_weights_are_no_weights(name):
    outputs = step_outputs()
    method = made(name)
    method.class_weights.fill_(1 / CLASSES)
    weighted = method.losses(outputs, STEP)
    plain = made(name, weight_source=False, weight_alignment=False)
    plain.load_state_dict(method.state_dict())
    for key, value in plain.losses(outputs, STEP).items():
        torch.testing.assert_close(weighted[key], value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "source", "alignment"),
    [("e-dann", True, False), ("aus", True, False), ("ba3us", True, True), ("ba3us-closed", False, False)],
)
def test_class_weights_act_where_the_system_says(name, source, alignment):
    outputs, method = step_outputs(), made(name)
    before = method.losses(outputs, STEP)
    method.class_weights.copy_(torch.tensor([0.01, 0.09, 0.2, 0.7]))
    after = method.losses(outputs, STEP)
    changed = {key: not torch.allclose(before[key], after[key]) for key in before}
    assert changed["classification"] == source
    assert changed.get("uncertainty", source) == source
    assert changed["alignment"] == alignment
    assert not changed["entropy"]


def test_refresh_makes_class_weights_the_mean_prediction():
    target = step_outputs().target
    method = made()
    method.refresh(target)
    torch.testing.assert_close(method.class_weights, target.logits.softmax(1).mean(0).detach())
    closed = made("ba3us-closed")
    before = closed.class_weights.clone()
    closed.refresh(target)
    assert torch.equal(closed.class_weights, before)


@pytest.mark.parametrize("reversal", [0.1, 1.0])
def test_the_adversarial_gradient_through_the_entropy_weights_lowers_every_entropy(reversal):
    """methods.md, unit check: a small step against it makes every row surer, in all three domains."""
    outputs, method = step_outputs(), made()
    leaves = [d.logits for d in (outputs.source, outputs.target, outputs.borrowed)]
    loss = method.alignment(outputs, method.class_weights, reversal=1.0, entropy_reversal=reversal)
    for logits, grad in zip(leaves, torch.autograd.grad(loss, leaves)):
        change = losses.entropy(logits - 1e-3 * grad / grad.norm()) - losses.entropy(logits)
        assert (change < 0).all()


def test_without_reversal_the_same_gradient_would_raise_entropy():
    """The control: it is the reversal that makes the hidden term an entropy minimisation."""
    outputs, method = step_outputs(), made()
    logits = outputs.target.logits
    (grad,) = torch.autograd.grad(method.alignment(outputs, method.class_weights, 1.0, -1.0), logits)
    assert (losses.entropy(logits - 1e-3 * grad / grad.norm()) > losses.entropy(logits)).all()
    (grad,) = torch.autograd.grad(method.alignment(outputs, method.class_weights, 1.0, 0.0), logits)
    assert not grad.any()


def test_detached_entropy_weights_send_no_gradient_to_the_logits():
    outputs, method = step_outputs(), made(entropy_gradient="detached")
    loss = method.alignment(outputs, method.class_weights, 1.0, 1.0)
    assert torch.autograd.grad(loss, outputs.target.logits, allow_unused=True)[0] is None
    torch.testing.assert_close(
        loss, made().alignment(outputs, method.class_weights, 1.0, 1.0)
    )  # the value is the same


def test_lambda_reverses_the_features_gradient_and_leaves_the_discriminators():
    outputs, method = step_outputs(), made()
    weights = list(method.discriminator.parameters())

    def grads(reversal):
        loss = method.alignment(outputs, method.class_weights, reversal, 0.5)
        return torch.autograd.grad(loss, [outputs.target.features, *weights])

    full, half = grads(1.0), grads(0.25)
    torch.testing.assert_close(half[0], 0.25 * full[0])
    for one, other in zip(full[1:], half[1:]):
        torch.testing.assert_close(one, other)
    # a step against the reversed gradient makes the discriminator worse, not better
    features = outputs.target.features
    plain = torch.autograd.grad(losses.domain_loss(method.discriminator(features), False).sum(), features)[0]
    assert (plain * full[0]).sum() < 0


def test_lambdas_the_discriminator_runs_one_step_ahead_when_released():
    released = made().log_scalars(STEP)
    assert released["lambda"] == pytest.approx(2 / (1 + math.exp(-4)) - 1)
    assert released["lambda_entropy"] == pytest.approx(2 / (1 + math.exp(-3)) - 1)
    paper = made(form="paper").log_scalars(STEP)
    assert paper["lambda"] == paper["lambda_entropy"] == released["lambda_entropy"]


def test_each_lambda_reaches_its_own_reversal():
    """The terms of a step use the two λ of its figures: D's for features, the other for the logits."""
    outputs, method = step_outputs(), made()
    d_lambda, h_lambda = (method.log_scalars(STEP)[k] for k in ("lambda", "lambda_entropy"))
    leaves = [outputs.target.features, outputs.target.logits]
    got = torch.autograd.grad(method.losses(outputs, STEP)["alignment"], leaves)
    expected = torch.autograd.grad(method.alignment(outputs, method.class_weights, 1.0, 1.0), leaves)
    torch.testing.assert_close(got[0], d_lambda * expected[0])
    torch.testing.assert_close(got[1], h_lambda * expected[1])


def test_borrowed_rows_enter_the_alignment_only():
    method = made()
    with_borrowed, without = step_outputs(k=2), step_outputs(k=0)
    a, b = method.losses(with_borrowed, STEP), method.losses(without, STEP)
    for key in ("classification", "entropy", "uncertainty"):
        assert torch.equal(a[key], b[key])
    assert not torch.allclose(a["alignment"], b["alignment"])


def test_terms_carry_alpha_and_beta():
    outputs = step_outputs()
    terms = made(alpha=0.3, beta=2.0, xi=0.5).losses(outputs, STEP)
    m = made().class_weights[outputs.source.labels]
    source = outputs.source
    torch.testing.assert_close(terms["entropy"], 0.3 * losses.entropy(outputs.target.logits).mean())
    aus = losses.complement_entropy(source.logits, source.labels, m, 0.5)
    torch.testing.assert_close(terms["uncertainty"], 2.0 * aus)
    assert "uncertainty" not in made("baa").losses(outputs, STEP)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("form", ["released", "paper"])
def test_all_zero_class_weights_give_finite_terms_and_gradients(name, form):
    outputs, method = step_outputs(), made(name, form=form)
    method.class_weights.zero_()
    terms = method.losses(outputs, STEP)
    sum(terms.values()).backward()
    grads = [d.logits.grad for d in outputs.domains if d.logits.grad is not None]
    assert grads and all(g.isfinite().all() for g in grads)
    assert all(p.grad.isfinite().all() for p in method.discriminator.parameters())
    if method.options.weight_source:
        assert terms["classification"].item() == 0
        assert terms.get("uncertainty", torch.zeros(())).item() == 0
    assert math.isfinite(method.log_scalars(STEP)["effective_classes"])


@pytest.mark.parametrize("size", [40.0, 1e4])
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("autocast", [False, True])
def test_saturated_outputs_give_finite_float32_terms(name, size, autocast):
    outputs = step_outputs(dtype=torch.float32)
    half = torch.bfloat16 if autocast else torch.float32

    def saturate(d):
        logits = (size * d.logits.detach().sign()).to(half).requires_grad_()
        features = (size * d.features.detach()).to(half).requires_grad_()
        return DomainOutputs(features, logits, d.rows, d.labels)

    outputs = Outputs(*map(saturate, (outputs.source, outputs.target, outputs.borrowed)))
    method = build(name, discriminator_dropout=0.0)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        terms = method.losses(outputs, STEP)
    assert all(t.dtype == torch.float32 and t.isfinite() for t in terms.values())
    sum(terms.values()).backward()
    for d in outputs.domains:
        assert all(t.grad is None or t.grad.isfinite().all() for t in (d.logits, d.features))
    assert all(p.grad.isfinite().all() for p in method.discriminator.parameters())


def test_conditional_discriminator_sees_the_outer_product():
    method = made("ba3us+cdan")
    assert method.discriminator[0].in_features == 5 * CLASSES
    outputs = step_outputs(k=0)
    seen = []
    method.discriminator[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    loss = method.alignment(outputs, method.class_weights, 1.0, 0.0)
    joint = torch.cat([outputs.source.features, outputs.target.features])
    p = torch.cat([outputs.source.logits, outputs.target.logits]).softmax(1)
    torch.testing.assert_close(seen[0], torch.einsum("nc,nd->ncd", p, joint).flatten(1))
    # p is detached: with the entropies' gradient off, nothing reaches the logits
    assert not torch.autograd.grad(loss, outputs.target.logits)[0].any()


def test_entropy_weights_can_be_switched_off():
    outputs, method = step_outputs(k=0), made("e-dann", entropy_weights=False)
    features = torch.cat([outputs.source.features, outputs.target.features])
    scores = method.discriminator(reverse_gradient(features, 1.0))
    truth = torch.cat([torch.ones(6), torch.zeros(6)]).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth)
    torch.testing.assert_close(
        method.alignment(outputs, method.class_weights, 1.0, 1.0), expected, rtol=1e-6, atol=0
    )


def test_borrowed_count_follows_the_released_intervals():
    method = build(batch_size=36, steps=20, refresh_every=2)[1]
    counts = [method.borrow(Step(i, 20)) for i in range(0, 21, 2)]
    assert counts == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert build("e-dann")[1].borrow(Step(0, 20)) == 0


def test_effective_classes_of_a_fresh_method_are_all():
    assert build()[1].log_scalars(STEP)["effective_classes"] == pytest.approx(CLASSES)


@pytest.mark.parametrize("quirks", [False, True])
def test_quirks_of_the_release(quirks):
    """The step after each refresh in evaluation mode, and a borrowed batch of one sample through batch norm."""
    passes: list[tuple[bool, int]] = []
    body = nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    options = {"steps": 6, "refresh_every": 2, "batch_size": 4, "released_quirks": quirks}
    run = trainer("ba3us", backbone=body, **options)

    class Steps(Callback):
        def on_step(self, trainer, step):
            passes.append((body[1].training, len(moved)))
            moved.clear()

    moved: list[int] = []
    body[1].register_forward_hook(lambda norm, x, y: moved.append(len(x[0])) if norm.training else None)
    run.callbacks = [Steps()]
    g = torch.Generator().manual_seed(0)
    images = [torch.randn(n, 3, 5, 5, generator=g).numpy() for n in (24, 12)]
    run.fit(Source(images[0], np.arange(24) % CLASSES, num_classes=CLASSES), Target(images[1]))
    training, counts = zip(*passes)
    assert all(training)  # in training mode again after every step
    # one borrowed sample in the first two steps, and refreshes before steps 2 and 4
    assert list(counts) == ([3, 3, 0, 2, 0, 2] if quirks else [2, 2, 2, 2, 2, 2])


def test_the_quirks_are_published_settings_and_no_defaults():
    entry = methods.get("ba3us")
    assert not entry.options().released_quirks and entry.options("office31").released_quirks
    for form, expected in {"released": True, "paper": False}.items():
        method = build(released_quirks=True, form=form)[1]
        assert (method.recipe().eval_step_after_refresh, method.single_borrowed) == (expected, expected)
