"""Networks made ready for inference give the same features, and leave the original alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ba3us.nn.backbones import create_backbone
from ba3us.nn.inference import FusedConv, for_inference

pytest.importorskip("timm", reason="needs the vision extra")


def lively(name: str) -> nn.Module:
    """A backbone with random weights and running statistics that are no identity."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = create_backbone(name, pretrained=False).module
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.2)
    return model


def fused(model: nn.Module) -> int:
    return sum(isinstance(m, FusedConv) for m in model.modules())


@pytest.mark.parametrize(
    ("name", "size", "convolutions"),
    [("resnet50", 64, 53), ("efficientnet_lite0", 64, 49), ("efficientnet_lite0", 75, 49)],
)
def test_gives_the_same_features(name, size, convolutions):
    model = lively(name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    quick = for_inference(model, size)
    assert fused(quick) == convolutions
    assert fused(model) == 0
    assert not any(isinstance(m, nn.BatchNorm2d) for m in quick.modules())
    x = torch.randn(3, 3, size, size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted, got = model.eval()(x), quick(x)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_works_without_onednn(monkeypatch):
    monkeypatch.setattr("ba3us.nn.inference._has_post_ops", lambda: False)
    model = lively("efficientnet_lite0")
    quick = for_inference(model, 64)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(quick(x), model(x), rtol=1e-3, atol=1e-4)


def test_convolutions_without_norm_take_their_activation():
    model = nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.ReLU(inplace=True), nn.Conv2d(5, 2, 3), nn.Tanh())
    quick = for_inference(model, 9)
    assert [type(m) for m in quick] == [FusedConv, nn.Identity, nn.Conv2d, nn.Tanh]
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        torch.testing.assert_close(quick(x), model(x))


def test_autocast_still_computes_in_bfloat16():
    quick = for_inference(lively("test_resnet"), 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert quick(torch.randn(1, 3, 64, 64)).dtype == torch.bfloat16


class Skips(nn.Module):
    """Uses what its convolution gives twice, so the norm can't be folded into it."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        z = self.conv(x)
        return (z - self.norm(z)).mean((2, 3))


class AddsInPlace(nn.Module):
    """Writes into the norm's output before the activation, as a residual block does."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU()

    def forward(self, x):
        z = self.norm(self.conv(x))
        z += x
        return self.act(z)


@pytest.mark.parametrize(("kind", "convolutions"), [(Skips, 0), (AddsInPlace, 1)])
def test_does_not_change_what_a_network_computes(kind, convolutions):
    model = kind()
    model.norm.running_mean += 1
    quick = for_inference(model, 8)
    assert fused(quick) == convolutions
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(quick(x), model(x))
