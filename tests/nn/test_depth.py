"""Cutting backbones: the parts are the whole, the cut is where it should be, and what can't be cut."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ba3us.errors import UserError

timm = pytest.importorskip("timm", reason="needs the vision extra")
from timm.models.vgg import VGG  # noqa: E402

from ba3us.nn import backbones  # noqa: E402
from ba3us.nn.backbones import Backbone, create_backbone  # noqa: E402


def wrapped(model, size=64):
    return Backbone("toy", model, 0, (0.5,) * 3, (0.5,) * 3, size, None)


def first_trained(parts):
    """Name of the first trained block that has weights."""
    return next(name for name, _ in parts.body.named_parameters())


def small_vgg():
    return VGG([4, "M", 6, 6, "M", 8, 8, "M"], num_classes=0, mlp_ratio=0.01, drop_rate=0.5)


def toys():
    for name in ("test_resnet", "test_efficientnet", "test_convnext"):
        model = timm.create_model(name)
        model.reset_classifier(0)
        yield pytest.param(model, id=name)
    yield pytest.param(small_vgg(), id="vgg")


@pytest.mark.parametrize("model", toys())
@pytest.mark.parametrize("train", ["tail", "head"])
def test_the_parts_are_the_whole(model, train):
    model = copy.deepcopy(model).eval()
    for buffer in model.buffers():  # batch norm that does something
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        whole = model(x)
    total = sum(p.numel() for p in model.parameters())
    parts = backbones.cut(wrapped(model), train)
    with torch.no_grad():
        torch.testing.assert_close(parts.body(parts.front(x)), whole, rtol=1e-4, atol=1e-5)
    counts = [sum(p.numel() for p in part.parameters()) for part in (parts.front, parts.body)]
    assert sum(counts) == total and counts[0] > 0 and (counts[1] > 0) == (train == "tail")
    assert not any(p.requires_grad for p in parts.front.parameters())
    assert all(p.requires_grad for p in parts.body.parameters())
    assert not any(m.training for m in parts.front.modules())


@pytest.mark.parametrize(
    ("name", "first"),
    [("resnet50", "layer3.4"), ("tf_efficientnet_lite0", "blocks.5.0"), ("vgg16", "features.24")],
)
def test_tail_is_the_last_third_of_the_blocks(name, first):
    with torch.device("meta"):
        backbone = create_backbone(name, pretrained=False)
    parts = backbones.cut(backbone, "tail")
    assert first_trained(parts).startswith(f"{first}.")
    x = torch.empty(2, 3, 224, 224, device="meta")
    assert parts.body(parts.front(x)).shape == (2, backbone.dim)


def test_all_and_named_stages():
    model = timm.create_model("test_resnet", num_classes=0)
    everything = backbones.cut(wrapped(model), "all")
    assert everything.front is None and everything.body is model
    assert backbones.cut(wrapped(model), "conv1").front is None
    assert first_trained(backbones.cut(wrapped(model), "layer4")).startswith("layer4.0.")
    model = timm.create_model("test_resnet", num_classes=0)
    assert first_trained(backbones.cut(wrapped(model), "layer2.0")).startswith("layer2.0.")


def test_modes_are_left_as_they_were():
    model = timm.create_model("test_resnet", num_classes=0).train()
    model.layer4.eval()
    parts = backbones.cut(wrapped(model), "layer3")
    assert parts.body.layer3.training and not parts.body.layer4.training


def test_unknown_stage():
    model = timm.create_model("test_resnet", num_classes=0)
    with pytest.raises(UserError, match=r"no stage called 'layer5'.*did you mean 'layer\d'"):
        backbones.cut(wrapped(model), "layer5")
    with pytest.raises(UserError, match=r"choose one of: .*all, .*head, .*layer1.*tail"):
        backbones.cut(wrapped(model), "xyz")


def test_networks_that_are_no_chain():
    with pytest.raises(UserError, match=r"'toy' can't be cut at 'blocks.4'.*'head' or 'all'"):
        backbones.cut(wrapped(timm.create_model("test_vit", num_classes=0), 160), "blocks.4")

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return (self.b(self.a(x)) + x).mean((2, 3))

    with pytest.raises(UserError, match="can't be cut at 'b'"):
        backbones.cut(wrapped(Around()), "b")


def test_frozen_inside_a_trained_network():
    front = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    frozen = backbones.Frozen(front)
    nn.Sequential(frozen, nn.Linear(4, 2)).train()
    assert not any(module.training for module in frozen.modules())
    before = front[1].running_mean.clone()
    out = frozen(torch.randn(4, 3, 5, 5))
    assert not out.requires_grad and torch.equal(front[1].running_mean, before)
