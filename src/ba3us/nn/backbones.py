"""Pretrained image backbones by name, with weights from the hub, a file or a package."""

from __future__ import annotations

import difflib
import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ba3us.errors import UserError, optional_import, require
from ba3us.nn import efficientnet_lite0, resnet50_v1

OFFLINE = "efficientnet_lite0"  # the one backbone whose weights need neither network nor file
# the paper's two networks carry torchvision's first ImageNet weights, which are not timm's default tags
ALIASES = {
    OFFLINE: efficientnet_lite0.TIMM_NAME,
    "resnet50": "resnet50.tv_in1k",
    resnet50_v1.NAME: "resnet50.tv_in1k",
    "vgg16": "vgg16.tv_in1k",
}
_PROBE_SECONDS = 5


@dataclass(frozen=True)
class Backbone:
    """A network that maps images to feature vectors, and how it wants its images.

    Attributes
    ----------
    name : str
        The name it was asked for by.
    module : Module
        [n, 3, size, size] normalised with `mean` and `std` → [n, dim].
    dim : int
        Length of a feature vector.
    mean, std : three floats
        Per-channel normalisation of pixels in [0, 1].
    size : int
        Side of the square input.
    classifier : Linear or None
        The pretrained classifier that stood on the features, if it is a linear layer.
    """

    name: str
    module: nn.Module
    dim: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    size: int
    classifier: nn.Linear | None

    @property
    def side(self) -> int:
        """Side of the squares that crops are taken from."""
        return square_side(self.size)

    @cached_property
    def digest(self) -> str:
        """16 digits that tell these weights from others; ask before the module is trained or taken apart."""
        return state_hash(self.module, 8).hexdigest()


def square_side(size: int) -> int:
    """Side of the squares that crops of side `size` are taken from: 256 for crops of 224, as in the paper."""
    return round(size * 8 / 7)


def state_hash(module: nn.Module, digest_size: int = 64) -> hashlib.blake2b:
    """A hash of the names and values of all weights and buffers."""
    sketch = hashlib.blake2b(digest_size=digest_size)
    for name, tensor in module.state_dict().items():
        sketch.update(name.encode())
        sketch.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return sketch


def create_backbone(name: str, weights: str | Path | None = None, *, pretrained: bool = True) -> Backbone:
    """A backbone by its timm name, in training mode, with its classifier taken off.

    ``resnet50`` and ``vgg16`` are the paper's: ResNet-50 pooled to 2048, VGG-16 with its two 4096 layers,
    each with ReLU and dropout 0.5. ``resnet50_v1`` is the original ResNet-50, whose weights must be given.
    ``efficientnet_lite0`` takes its weights from an installed package.

    Parameters
    ----------
    name : str
        Any name of ``timm.list_models()``, with or without a tag, or one of :data:`ALIASES`.
    weights : path, optional
        A ``.safetensors`` or ``.pth`` file; by default the package for ``efficientnet_lite0``, and timm's
        hub (or its local cache) for all others.
    pretrained : bool
        False gives random weights.
    """
    timm = optional_import("timm", "vision")
    full_name = ALIASES.get(name, name)
    _check_name(timm, name, full_name)
    if weights is not None:
        model = _with_state(timm, full_name, _read_weights(timm, Path(weights)), str(weights))
    elif not pretrained:
        model = _build(timm, full_name)
    elif name == OFFLINE:
        model = _with_state(timm, full_name, efficientnet_lite0.packaged_weights(), "its package")
    else:
        model = _from_hub(timm, name, full_name)
    if name == resnet50_v1.NAME:
        resnet50_v1.make_original(model)
    return _without_classifier(name, model)


def _check_name(timm: Any, name: str, full_name: str) -> None:
    architecture, _, tag = full_name.partition(".")
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, [*ALIASES, *timm.list_models()], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "timm.list_models() shows all names."
        raise UserError(f"There is no backbone called {name!r}: {hint}")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise UserError(f"The backbone {architecture!r} has no weights tagged {tag!r}: choose one of {tags}.")


def _build(timm: Any, full_name: str, **options: Any) -> nn.Module:
    if full_name.startswith("vgg"):
        options["drop_rate"] = 0.5  # after each of the two 4096 layers, as in the paper; timm's default is 0
    return timm.create_model(full_name, **options)


def _from_hub(timm: Any, name: str, full_name: str) -> nn.Module:
    require(
        name != resnet50_v1.NAME,
        f"The weights of {name!r} can't be fetched: give a .safetensors or .pth file (--weights FILE).",
    )
    try:
        with _offline_unless_reachable():
            return _build(timm, full_name, pretrained=True)
    except Exception as error:
        raise UserError(
            f"The weights of {full_name!r} can't be fetched from timm's hub ({type(error).__name__}): connect "
            f"to the network, give a .safetensors or .pth file (--weights FILE), or use the backbone "
            f"{OFFLINE!r}, which needs neither."
        ) from error


@contextmanager
def _offline_unless_reachable() -> Iterator[None]:
    """Without a network, make the hub use its cache at once instead of trying for a minute."""
    constants = optional_import("huggingface_hub.constants", "vision")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(address: str) -> bool:
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=_PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        return False


def _read_weights(timm: Any, path: Path) -> dict[str, Tensor]:
    require(path.is_file(), f"There is no weights file {path}: check the path.")
    require(
        path.suffix in (".safetensors", ".pth", ".pt", ".bin"),
        f"The weights file {path} is neither .safetensors nor .pth: convert it to one of them.",
    )
    try:
        state = timm.models.load_state_dict(str(path), weights_only=True)
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    except Exception as error:
        raise UserError(
            f"The weights file {path} can't be read ({type(error).__name__}): it is damaged, or holds more "
            f"than weights; save a state dict in it."
        ) from error
    require(bool(tensors), f"The weights file {path} holds no tensors: save a state dict in it.")
    return tensors


def _with_state(timm: Any, full_name: str, state: dict[str, Tensor], origin: str) -> nn.Module:
    """Build with exactly these weights; timm's own filters translate older names (torchvision's VGG)."""
    classes = _classes_in(state, getattr(timm.get_pretrained_cfg(full_name), "classifier", None))
    overlay = {"state_dict": state, "num_classes": classes, "custom_load": False, "label_offset": 0}
    try:
        return _build(timm, full_name, pretrained=True, num_classes=classes, pretrained_cfg_overlay=overlay)
    except (RuntimeError, KeyError) as error:
        first = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
        raise UserError(
            f"The weights from {origin} do not fit the backbone {full_name!r} ({first[:160]}): give weights "
            f"that were saved from it."
        ) from error


def _classes_in(state: Mapping[str, Tensor], classifier: str | tuple[str, ...] | None) -> int:
    """How many classes the file's classifier has; 0 if it has none."""
    names = (classifier,) if isinstance(classifier, str) else classifier or ()
    for name in (*names, "classifier.6"):  # the last: torchvision's VGG
        weight = state.get(f"{name}.weight")
        if weight is not None:
            return len(weight)
    return 0


def _without_classifier(name: str, model: nn.Module) -> Backbone:
    config: dict[str, Any] = model.pretrained_cfg  # type: ignore[assignment]
    config.pop("state_dict", None)  # timm would keep a second copy of the weights alive
    classifier = model.get_classifier()  # type: ignore[operator]
    model.reset_classifier(0)  # type: ignore[operator]
    return Backbone(
        name=name,
        module=model,
        dim=int(getattr(model, "head_hidden_size", None) or model.num_features),  # type: ignore[arg-type]
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        size=int(config["input_size"][-1]),
        classifier=classifier if isinstance(classifier, nn.Linear) else None,
    )
