"""TransNorm layers and how they take the place of batch norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ba3us.errors import UserError
from ba3us.nn import TransNorm1d, TransNorm2d, swap_batch_norm


def trained_norm(kind, width=3):
    norm = kind(width)
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean):
            value.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    return norm


@pytest.mark.parametrize(("kind", "made", "shape"), [
    (nn.BatchNorm1d, TransNorm1d, (6, 3)), (nn.BatchNorm2d, TransNorm2d, (6, 3, 4, 4))
])  # fmt: skip
def test_a_swapped_layer_starts_as_twice_the_batch_norm(kind, made, shape):
    """Where both domains have the same statistics every channel transfers alike: α = 1."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Identity(), nn.Sequential(trained_norm(kind))).eval(), torch.randn(shape)
    before = net(x)
    swap_batch_norm(net)
    layer = net[1][0]
    assert isinstance(layer, made)
    assert torch.allclose(net.eval()(x), 2 * before, atol=1e-6)
    assert torch.equal(layer.running_var_source, layer.running_var_target)


def test_each_half_has_its_own_statistics():
    torch.manual_seed(0)
    layer = TransNorm1d(2, momentum=1.0)
    source, target = torch.randn(50, 2), 5 + 3 * torch.randn(50, 2)
    out = layer(torch.cat([source, target]))
    assert torch.allclose(layer.running_mean_source, source.mean(0), atol=1e-6)
    assert torch.allclose(layer.running_var_target, target.var(0), atol=1e-5)
    assert out[:50].mean().abs() < 1e-6 and out[50:].mean().abs() < 1e-6


def test_channels_that_differ_less_count_more():
    torch.manual_seed(0)
    source, target = torch.randn(500, 2), torch.randn(500, 2)
    target[:, 1] += 4
    out = TransNorm1d(2)(torch.cat([source, target]))
    assert out[:, 0].std() > 1.5 * out[:, 1].std()


def test_an_activation_inside_the_norm_layer_is_kept():
    timm_layers = pytest.importorskip("timm.layers")
    torch.manual_seed(0)
    net = nn.Sequential(timm_layers.BatchNormAct2d(3)).eval()
    x = torch.randn(4, 3, 5, 5)
    before = net(x)
    swap_batch_norm(net)
    assert torch.allclose(net.eval()(x), 2 * before, atol=1e-6)  # ReLU lets the factor through


def test_an_odd_batch_is_a_sentence():
    with pytest.raises(UserError, match="given 5 rows"):
        TransNorm1d(2)(torch.zeros(5, 2))
    TransNorm1d(2).eval()(torch.zeros(5, 2))


def test_a_layer_it_does_not_know_is_a_sentence():
    with pytest.raises(UserError, match="BatchNorm3d"):
        swap_batch_norm(nn.Sequential(nn.BatchNorm3d(2)))


def test_half_precision_statistics_do_not_overflow():
    x = 300 * torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    assert TransNorm1d(2).bfloat16()(x.bfloat16()).isfinite().all()


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet"])
def test_it_takes_the_place_of_batch_norm_in_timms_networks(name):
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, num_classes=0)
    swap_batch_norm(net)
    layers = [m for m in net.modules() if isinstance(m, TransNorm2d)]
    assert layers and not [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    net(torch.randn(4, 3, 64, 64)).sum().backward()
    assert all(layer.weight.grad is not None for layer in layers)
    assert net.eval()(torch.randn(3, 3, 64, 64)).isfinite().all()
