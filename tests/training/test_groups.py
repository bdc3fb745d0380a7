"""Parameter groups of the paper's two networks: counts, and the learning rate of each part."""

from __future__ import annotations

import pytest
import torch

from ba3us import methods
from ba3us.nn import Network
from ba3us.training import Trainer, loop

pytest.importorskip("timm", reason="needs the vision extra")
from ba3us.nn.backbones import create_backbone

CLASSES = 31
DISCRIMINATOR = 256 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 + 1


@pytest.mark.parametrize(
    ("name", "dim", "count"), [("resnet50", 2048, 23_508_032), ("vgg16", 4096, 134_260_544)]
)
def test_backbone_at_a_tenth_of_the_heads_rate(name, dim, count):
    entry = methods.get("ba3us")
    config = entry.options()
    with torch.device("meta"):
        backbone = create_backbone(name, pretrained=False)
        network = Network(backbone.module, backbone.dim, CLASSES, entry.method.head(config))
        method = entry.create(network, config)
    trainer = Trainer(network, method)
    slow, fast = loop.optimizer(trainer.module, trainer.recipe, trainer.recipe.phases[0]).param_groups
    assert (slow["lr_scale"], fast["lr_scale"]) == (0.1, 1.0)
    assert slow["momentum"] == fast["momentum"] == 0.9 and slow["nesterov"] and fast["nesterov"]
    assert slow["weight_decay"] == fast["weight_decay"] == 1e-3
    assert sum(p.numel() for p in slow["params"]) == count
    head = dim * 256 + 256 + 256 * CLASSES + CLASSES
    assert sum(p.numel() for p in fast["params"]) == head + DISCRIMINATOR
