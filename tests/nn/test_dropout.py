"""The cheap dropout has the distribution of the usual one."""

from __future__ import annotations

import pytest
import torch

from ba3us.nn import discriminator
from ba3us.nn.discriminator import Dropout


@pytest.mark.parametrize("p", [0.5, 0.25, 0.1, 0.9])
def test_rate_scale_and_independence(p):
    torch.manual_seed(0)
    x = torch.ones(400, 501)
    y = Dropout(p)(x)
    kept = (y != 0).double()
    n = kept.numel()
    assert abs(float(kept.mean()) - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
    torch.testing.assert_close(y[y != 0], torch.full((int(kept.sum()),), 1 / (1 - p)))
    for lag in (1, 3, 4, 8, 64):  # neighbours cut out of one word are independent
        flat = kept.flatten() - kept.mean()
        correlation = float((flat[lag:] * flat[:-lag]).mean() / flat.var())
        assert abs(correlation) < 5 / n**0.5


def test_eval_zero_rate_seed_and_gradient():
    x = torch.randn(7, 5, requires_grad=True)
    layer = Dropout(0.5)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    torch.testing.assert_close(first, layer(x), rtol=0, atol=0)
    first.sum().backward()
    torch.testing.assert_close(x.grad, (first != 0) * 2.0)
    assert layer.eval()(x) is not None
    torch.testing.assert_close(layer(x), x)
    torch.testing.assert_close(Dropout(0.0)(x), x)
    assert Dropout(0.5)(x.double()).dtype == torch.float64


@pytest.mark.parametrize("shape", [(7,), (81, 64), (3, 5)])
def test_every_bit_of_a_random_word_is_one_even_chance(shape):
    torch.manual_seed(3)
    words = discriminator._random_words(-(-torch.Size(shape).numel() // 64))
    bits = [(int(word) >> i) & 1 for word in words for i in range(64)]
    torch.manual_seed(3)
    coins = discriminator._coins(torch.Size(shape), torch.float64)
    assert coins.shape == shape and coins.flatten().tolist() == [2.0 * b for b in bits[: coins.numel()]]


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_dropping_before_the_relu_in_place_is_dropping_after_it(p):
    x, g = torch.randn(9, 32, requires_grad=True), torch.randn(9, 32)
    torch.manual_seed(0)
    after = Dropout(p)(x.relu())
    torch.manual_seed(0)
    before = Dropout(p, inplace=True)(x * 1).relu_()
    assert torch.equal(before, after)
    assert torch.equal(*(torch.autograd.grad(y, x, g)[0] for y in (before, after)))
    own = torch.ones(4)
    assert Dropout(p, inplace=True)(own) is own and not torch.equal(own, torch.ones(4))
