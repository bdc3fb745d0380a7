"""The shared network, the discriminator and gradient reversal."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ba3us.nn import SMALL, Discriminator, Head, Network, reverse_gradient


def test_forward_gives_features_and_their_logits():
    network = Network(nn.Identity(), 6, 3, Head(bottleneck=4))
    x = torch.randn(5, 6)
    features, logits = network(x)
    assert features.shape == (5, 4) and logits.shape == (5, 3)
    torch.testing.assert_close(features, network.bottleneck(x))
    torch.testing.assert_close(logits, features @ network.classifier.weight.T + network.classifier.bias)
    assert (network.feature_dim, network.num_classes) == (4, 3)


def test_without_bottleneck_the_features_are_the_backbones():
    network = Network(nn.Linear(6, 8), 8, 3, Head(bottleneck=None))
    x = torch.randn(2, 6)
    torch.testing.assert_close(network(x)[0], network.backbone(x))
    assert network.feature_dim == 8


def test_new_layers_start_xavier_normal_with_zero_bias():
    torch.manual_seed(0)
    network = Network(nn.Identity(), 400, 100, Head(bottleneck=300))
    for layer in (network.bottleneck, network.classifier, Discriminator(256)[0]):
        fan = sum(layer.weight.shape)
        assert layer.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.03)
        assert not layer.bias.any()


def test_joined_passes_equal_separate_ones():
    network = Network(nn.Linear(6, 6), 6, 3, Head(bottleneck=4)).double()
    batches = [torch.randn(n, 6, dtype=torch.float64) for n in (5, 2, 3)]
    for joined, alone in zip(network.passes(*batches), zip(*map(network, batches)), strict=True):
        torch.testing.assert_close(joined, torch.cat(alone))


class Counting(nn.Module):
    """Passes through and writes down the size of every batch it was given."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def forward(self, x):
        self.sizes.append(len(x))
        return x


def test_batch_norm_keeps_the_domains_in_separate_passes():
    counting = Counting()
    network = Network(nn.Sequential(counting, nn.BatchNorm1d(6)), 6, 3)
    batches = [torch.randn(5, 6) + 10 * k for k in range(2)]
    joined, _ = network.passes(batches[0], torch.empty(0, 6), batches[1])
    assert network.couples_samples and counting.sizes == [5, 5]
    norm = nn.BatchNorm1d(6)
    for features, x in zip(joined.split(5), batches, strict=True):
        torch.testing.assert_close(features, network.bottleneck(norm(x)))
    network.eval()
    network.passes(*batches)
    assert not network.couples_samples and counting.sizes == [5, 5, 10]


def test_a_plain_network_takes_one_pass():
    counting = Counting()
    Network(counting, 6, 3).passes(torch.randn(5, 6), torch.randn(4, 6))
    assert counting.sizes == [9]


def test_joined_passes_see_the_rows_that_were_given():
    block = torch.randn(16, 6)
    batches = block[::4][:1], block[1:4]  # one row with a long stride, and what follows it in memory
    network = Network(nn.Identity(), 6, 3, Head(bottleneck=None))
    assert torch.equal(network.passes(*batches)[0], block[:4])


def test_joined_batches_that_want_gradients_get_their_own():
    block = torch.randn(5, 6, requires_grad=True)
    Network(nn.Identity(), 6, 3).passes(*block.split([2, 3]))[1].sum().backward()
    assert block.grad is not None and block.grad.abs().sum(dim=1).all()


def test_discriminator_is_in_1024_1024_1_with_dropout():
    d = Discriminator(256)
    assert sum(p.numel() for p in d.parameters()) == (256 + 1) * 1024 + (1024 + 1) * 1024 + 1024 + 1
    assert [m.p for m in d if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    x = torch.randn(3, 256)
    assert d(x).shape == (3,)
    assert not torch.equal(d(x), d(x))
    d.eval()
    assert torch.equal(d(x), d(x))


def test_discriminator_gives_logits_not_probabilities():
    torch.manual_seed(0)
    scores = Discriminator(4, 16, 0.0)(100 * torch.randn(50, 4))
    assert scores.min() < 0 and scores.max() > 1


def test_gradient_reversal():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = reverse_gradient(x, 0.3)
    assert torch.equal(y, x)
    (y * torch.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == pytest.approx([-0.3, -3.0])


def test_gradient_reversal_keeps_the_dtype():
    x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    reverse_gradient(x, 0.5).sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 9, 13)])
def test_small_cnn_shape(shape):
    cnn, width = SMALL["small-cnn"](shape)
    assert cnn(torch.zeros(2, *shape)).shape == (2, width)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in cnn.modules())
