"""DRCN: the correction, and distances class by class."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ba3us import losses
from ba3us.methods.base import Batch, Inputs, Step
from toys import CLASSES, WIDTH, build


def inputs(n=6):
    g = torch.Generator().manual_seed(0)
    x, labels = torch.randn(n, WIDTH, generator=g), torch.arange(n) % CLASSES
    batch = Batch(x, torch.arange(n), labels)
    return Inputs(batch, Batch(x + 1, torch.arange(n)), batch.none())


def test_class_distance_by_hand_with_a_linear_kernel():
    """With K = x·y, MMD² of a class is the squared distance of its (weighted) means."""
    source, target = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]]), torch.tensor([[1.0, 1.0], [1.0, 3.0]])
    x = torch.cat([source, target])
    members = F.one_hot(torch.tensor([0, 0, 1]), 3).float()
    soft = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    # class 0: means (1, 0) and (1, 5/3); class 1 has no target, class 2 no source
    expected = torch.tensor([(5 / 3) ** 2, 0.0, 0.0])
    torch.testing.assert_close(losses.class_mmd(x @ x.T, members, soft), expected)


def test_kernels_do_not_notice_a_change_of_scale():
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(losses.gaussian_kernels(x), losses.gaussian_kernels(100 * x))
    assert torch.equal(losses.gaussian_kernels(torch.ones(3, 2)), torch.full((3, 3), 5.0))


@pytest.mark.parametrize("domain", ["source", "target"])
def test_only_the_chosen_domain_is_corrected(domain):
    network, method = build("drcn", correct=domain)
    nn.init.ones_(method.correction[2].bias)  # a correction of +1
    data = inputs()
    out = method.outputs(network, data)
    for name in ("source", "target"):
        plain = network(getattr(data, name).x)[0]
        torch.testing.assert_close(getattr(out, name).features, plain + (name == domain))
        torch.testing.assert_close(getattr(out, name).logits, network.classifier(plain + (name == domain)))
    predicted = method.predict(network, data.target.x)[1]
    torch.testing.assert_close(predicted, out.target.logits)


def test_it_starts_without_correction():
    network, method = build("drcn")
    data = inputs()
    torch.testing.assert_close(method.outputs(network, data).source.logits, network(data.source.x)[1])


def test_a_class_without_weight_does_not_pull():
    network, method = build("drcn")
    out = method.outputs(network, inputs())
    method.class_weights.copy_(torch.tensor([0.0, 1.0, 1.0, 1.0]))
    outlier = out.source.labels == 0
    (gradient,) = torch.autograd.grad(method.distance(out.source, out.target), out.source.features)
    assert not gradient[outlier].any() and gradient[~outlier].any()
    method.class_weights.zero_()
    assert method.distance(out.source, out.target) == 0


def test_all_rows_at_once_is_the_linear_time_estimate():
    network, method = build("drcn", class_wise=False)
    out = method.outputs(network, inputs())
    kernel = losses.gaussian_kernels(torch.cat([out.source.features, out.target.features]))
    torch.testing.assert_close(method.distance(out.source, out.target), losses.linear_mmd(kernel))


def test_alignment_comes_in_slowly():
    """Aligned at full weight from the start, C→W of Office-Caltech 10→5 fell to 69 %; source-only has 97 %."""
    network, method = build("drcn")
    out = method.outputs(network, inputs())
    terms = [method.losses(out, Step(i, 10))["alignment"] for i in (0, 1, 10)]
    assert terms[0] == 0 < terms[1] < terms[2]
