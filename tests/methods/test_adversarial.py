"""Behaviour of the adversarial systems that parity with stored numbers does not show."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ba3us import methods
from ba3us.data import Target
from ba3us.errors import UserError
from ba3us.methods.base import DomainOutputs, Outputs, Phase, Step
from ba3us.methods.etn import leaky_cross_entropy, leaky_log_softmax, leaky_scores
from ba3us.methods.shared import sample_weights, target_mass
from ba3us.nn import TransNorm1d
from ba3us.training import Callback, Execution
from toys import CLASSES, WIDTH, blobs, build, trainer

B = 6


def outputs(width=5, scale=1.0, seed=0):
    g = torch.Generator().manual_seed(seed)

    def domain(labels=None):
        f = torch.randn(B, width, generator=g).requires_grad_()
        z = (scale * torch.randn(B, CLASSES, generator=g)).requires_grad_()
        return DomainOutputs(f, z, torch.arange(B), labels)

    source, target = domain(torch.arange(B) % CLASSES), domain()
    return Outputs(
        source, target, DomainOutputs(*(t[:0] for t in (source.features, source.logits, source.rows)))
    )


# --- class weights ----------------------------------------------------------------------------------------


def test_class_weights_sum_over_the_views():
    z = torch.randn(3, 7, CLASSES)
    seen = DomainOutputs(z[0], z[0], torch.arange(7), extra={"views": z})
    plain = DomainOutputs(z[0], z[0], torch.arange(7))
    assert torch.allclose(target_mass(seen, 2.0), (2 * z).softmax(-1).sum(0).mean(0))
    assert torch.allclose(target_mass(plain), z[0].softmax(-1).mean(0))


class Refreshes(Callback):
    def __init__(self):
        self.steps = []

    def on_evaluation(self, trainer, evaluation):
        self.steps.append(evaluation.step)


@pytest.mark.parametrize("name", ["pada", "san"])
def test_weights_are_refreshed_one_update_early_from_the_targets_views(name):
    source, target, _ = blobs()
    x = target.batch(slice(None))
    views = torch.stack([torch.zeros_like(x)] * 2)  # two views that say nothing: uniform weights
    watch = Refreshes()
    result = trainer(name, callbacks=(watch,), steps=10, refresh_every=4).fit(source, Target(x, views=views))
    assert watch.steps == [3, 7, 10]
    network = result.use("last").module.network
    with torch.no_grad():
        blank = network(torch.zeros(1, WIDTH))[1].softmax(1)[0]
    assert torch.allclose(result.module.method.class_weights, blank / blank.max(), atol=1e-6)


def test_pada_leaves_absent_classes_out():
    _, method = build("pada")
    o = outputs()
    method.class_weights.copy_(torch.tensor([1.0, 0.5, 0.0, 0.0]))
    terms = method.losses(o, Step(5, 8))
    sum(terms.values()).backward()
    absent = o.source.labels >= 2
    assert not o.source.logits.grad[absent].any() and not o.source.features.grad[absent].any()
    assert o.source.features.grad[~absent].any() and o.target.features.grad.any()


def test_padas_cross_entropy_is_torchs_also_where_its_weights_are_tiny():
    """Its program has no epsilon: weights near 1e-8 count as much as others in their batch."""
    _, method = build("pada", tau=10.0)
    o = outputs()
    weights = torch.tensor([3e-8, 1e-8, 1e-9, 1.0])
    method.class_weights.copy_(weights)
    source = dataclasses.replace(o.source, labels=o.source.labels % 3)
    terms = method.losses(dataclasses.replace(o, source=source), Step(5, 8))
    expected = F.cross_entropy(source.logits, source.labels, weight=weights)
    torch.testing.assert_close(terms["classification"], expected)


@pytest.mark.parametrize("name", ["adda", "iwan-original"])
def test_the_source_stage_of_two_encoders_can_suppress_uncertainty(name):
    assert "uncertainty" not in build(name)[1].warmup_losses(outputs())
    assert build(name, beta=2.0)[1].warmup_losses(outputs())["uncertainty"] < 0


def test_san_switches_the_discriminators_of_absent_classes_off_for_the_features():
    _, method = build("san")
    o = outputs()
    method.class_weights.zero_()
    terms = method.losses(o, Step(5, 8))
    terms["alignment"].backward()
    assert not o.source.features.grad.any()
    assert all(p.grad.any() for p in method.discriminators.weights)  # but they go on learning


@pytest.mark.parametrize(("classes", "hidden"), [(31, (1024, 1024)), (65, (256,)), (256, (256,)), (257, ())])
def test_sans_discriminators_shrink_with_the_number_of_classes(classes, hidden):
    assert methods.get("san").options().hidden(classes) == hidden


def test_san_takes_weights_from_the_batch_if_told():
    _, method = build("san", weighting="batch")
    o = outputs()
    method.refresh(o.target)
    assert torch.equal(method.class_weights, torch.ones(CLASSES))
    method.losses(o, Step(0, 8))
    mean = torch.cat([o.source.logits, o.target.logits]).softmax(1).mean(0)
    assert torch.allclose(method.class_weights, mean / mean.max())


# --- sample weights ---------------------------------------------------------------------------------------


def test_sample_weights_favour_rows_that_look_like_the_target():
    scores = torch.tensor([-3.0, 0.0, 3.0], requires_grad=True)
    w = sample_weights(scores, 1e-5)
    assert w[0] > w[1] > w[2] and float(w.mean()) == pytest.approx(1, abs=1e-4)
    assert not w.requires_grad
    assert torch.equal(sample_weights(torch.full((3,), 200.0), 1e-5), torch.zeros(3))


@pytest.mark.parametrize("name", ["iwan", "etn"])
def test_the_weighing_network_is_never_felt_by_the_features(name):
    _, method = build(name)
    o = outputs()
    terms = method.losses(o, Step(5, 8))
    sum(terms[t] for t in terms if t in ("weighing", "auxiliary_domain", "auxiliary_class")).backward()
    assert o.source.features.grad is None and o.target.features.grad is None


# --- ETN's leaky softmax ----------------------------------------------------------------------------------


def test_leaky_cross_entropy_is_the_sum_of_binary_ones():
    z, y = 3 * torch.randn(9, CLASSES, generator=torch.Generator().manual_seed(0)), torch.arange(9) % CLASSES
    u = leaky_log_softmax(z).exp()
    target = nn.functional.one_hot(y, CLASSES).float()
    plain = nn.functional.binary_cross_entropy(u, target, reduction="sum") / len(z)
    assert torch.allclose(leaky_cross_entropy(z, y), plain, rtol=1e-5)
    assert torch.allclose(u.sum(1), leaky_scores(z).sigmoid(), rtol=1e-5)


@pytest.mark.parametrize("scale", [40.0, 1e4])
def test_leaky_cross_entropy_is_finite_and_right_at_saturation(scale):
    z = torch.tensor([[scale, 0.0, -scale]] * 2, requires_grad=True)
    loss = leaky_cross_entropy(z, torch.tensor([1, 0]))
    loss.backward()
    # the wrong class is sure: log(1 - u_0) = log((C + 1) e^(-scale)), and log u_1 = -scale
    wrong = 2 * scale - float(torch.tensor(4.0).log())
    assert loss.item() == pytest.approx(wrong / 2, rel=1e-3)
    assert z.grad.isfinite().all() and z.grad[0, 0] > 0


# --- two encoders -----------------------------------------------------------------------------------------


class Encoders(Callback):
    """Copies of both encoders at the start of the second stage."""

    def on_step(self, trainer, step):
        if step.phase == "adapt" and step.number == 0:
            self.source = copy.deepcopy(trainer.method.source_encoder.state_dict())
            self.classifier = copy.deepcopy(trainer.module.network.classifier.state_dict())


@pytest.mark.parametrize("name", ["adda", "iwan-original"])
def test_the_sources_encoder_and_the_classifier_stay_as_the_source_stage_left_them(name):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    watch = Encoders()
    run = Execution(n_threads=1, log_every=1)
    source, target, _ = blobs()
    result = trainer(name, run=run, callbacks=(watch,), backbone=backbone).fit(source, target).use("last")
    method, network = result.module.method, result.module.network
    for key, value in method.source_encoder.state_dict().items():  # its batch norm too
        assert torch.equal(value, watch.source[key])
    assert torch.equal(network.classifier.weight, watch.classifier["weight"])
    assert not torch.equal(network.bottleneck.weight, method.source_encoder[1].weight)
    assert [p.steps for p in result.recipe.phases] == [4, 4]  # the stages share the budget


def test_the_source_stage_can_be_set():
    _, method = build("adda", source_steps=0, warmup_steps=2)
    assert [(p.name, p.steps) for p in method.recipe().phases] == [("warmup", 2), ("adapt", 8)]
    with pytest.raises(UserError, match="source_steps"):
        build("adda", source_steps=8)


def test_addas_encoder_learns_to_pass_for_the_source():
    """Its gradient raises D's belief that target rows are source rows."""
    for generator in ("inverted", "reversed"):
        _, method = build("adda", generator=generator, discriminator_dropout=0.0)
        o = outputs()
        sum(method.losses(o, Step(7, 8)).values()).backward()
        assert o.source.features.grad is None
        with torch.no_grad():
            moved = method.discriminator(o.target.features - 0.1 * o.target.features.grad)
            assert moved.mean() > method.discriminator(o.target.features).mean()


# --- TransNorm --------------------------------------------------------------------------------------------


def test_transnorm_warms_up_with_both_halves():
    network, method = build("cdan+transnorm", warmup_steps=2)
    assert all(phase.target for phase in method.recipe().phases)
    assert any(isinstance(m, TransNorm1d) for m in network.modules())
    source, target, _ = blobs()
    result = trainer("cdan+transnorm", warmup_steps=2).fit(source, target)
    assert set(result.history["phase"]) == {"warmup", "adapt"}


@pytest.mark.parametrize("option", [
    ("cdan", {"product": "outer"}), ("cdan", {"form": "paper"}), ("cdan", {"random_dims": 0}),
    ("cdan+transnorm", {"batch_size": 1}), ("san", {"weighting": "both"}), ("san", {"entropy_weight": -1.0}),
    ("pada", {"tau": 0.0}), ("adda", {"generator": "gan"}), ("iwan", {"trade_off": -1.0}),
    ("iwan-original", {"entropy_weight": -1.0}), ("etn", {"auxiliary_class": -1.0}),
])  # fmt: skip
def test_bad_options_are_a_sentence(option):
    name, options = option
    with pytest.raises(UserError, match=f"Option '{next(iter(options))}'"):
        methods.get(name).options(**options)


def test_phases_freeze_what_they_do_not_train():
    """The recipe of a two-encoder method names the method's own parts, but not the frozen encoder."""
    _, method = build("iwan-original")
    adapt: Phase = method.recipe().phases[-1]
    assert set(adapt.trains) == {"network.backbone", "network.bottleneck", "method.adversaries"}
