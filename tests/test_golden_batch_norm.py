"""Whole trainings of the original programs with a small convolutional network and batch norm, through our loop.

What counts is which samples pass the network together, in which mode, and how often the running statistics
move (docs/fidelity.md). Sizes, settings and names of arrays are read from the file.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ba3us import methods
from ba3us.data import BatchIndices, Source, Target
from ba3us.nn import Network
from ba3us.training import Callback, Execution, Trainer
from golden_tools import LAYERS, close, linears

pytestmark = pytest.mark.usefixtures("float64")

RTOL = 1e-9
# before the first refresh the release has no weights where ours are 1/C, and adds 1e-8 to its normalisers
FAMILY_RTOL = 1e-8
NAME = "bn_trajectory"
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest) -> Arrays:
    """From the folder that ``--golden`` names, or the shared one: the file is too large to be kept here."""
    folders = [request.config.getoption("--golden")]
    folders += [Path(named) / "golden"] if (named := os.environ.get("BA3US_SHARED")) else []
    for folder in folders:
        if (path := folder / f"{NAME}.npz").is_file():
            with np.load(path, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
    pytest.skip(f"no {NAME}.npz in {' or '.join(map(str, folders))}")


class Backbone(nn.Module):
    """conv, norm, ReLU, twice, and the mean over positions. As in a ResNet, only bn1 is directly under it."""

    def __init__(self, file: Arrays) -> None:
        super().__init__()
        (first, channels, *kernel), (second, *_) = file["init/conv1_W"].shape, file["init/conv2_W"].shape
        given = {"eps": float(file["cfg/bn_eps"]), "momentum": float(file["cfg/bn_momentum"])}
        self.conv1, self.bn1 = nn.Conv2d(channels, first, kernel), nn.BatchNorm2d(first, **given)
        self.stage = nn.Sequential(
            nn.Conv2d(first, second, file["init/conv2_W"].shape[2:]), nn.BatchNorm2d(second, **given)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.stage(F.relu(self.bn1(self.conv1(x))))).mean(dim=(2, 3))


class NormedDiscriminator(nn.Sequential):
    """TLL's discriminator for ADDA, which has batch norm where ours has dropout."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(
            nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(1)


def norm_tensors(norm: nn.Module, name: str, gamma: str = "", beta: str = "") -> dict[str, Tensor]:
    """Parameters and running statistics of a norm layer, by their names in the file."""
    statistics = {n.replace("running", name, 1): t for n, t in norm.named_buffers() if n.startswith("running")}
    return {gamma or f"{name}_gamma": norm.weight, beta or f"{name}_beta": norm.bias, **statistics}


def network_tensors(network: Network) -> dict[str, Tensor]:
    """Everything in the network that is stored, by its name in the file."""
    backbone, bottleneck = network.backbone, network.bottleneck
    layers = list(bottleneck) if isinstance(bottleneck, nn.Sequential) else [bottleneck]
    found = norm_tensors(layers[1], "bnb") if len(layers) > 1 else {}
    for name, conv in {"conv1": backbone.conv1, "conv2": backbone.stage[0]}.items():
        found |= {f"{name}_W": conv.weight, f"{name}_b": conv.bias}
    found |= norm_tensors(backbone.bn1, "bn1") | norm_tensors(backbone.stage[1], "bn2")
    found |= {"Wb": layers[0].weight, "bb": layers[0].bias}
    return found | {"Wc": network.classifier.weight, "bc": network.classifier.bias}


def discriminators(method: methods.Method) -> dict[str, nn.Module]:
    """The method's own networks, by their prefix in the file."""
    if hasattr(method, "adversaries"):
        return {"": method.adversaries.weigher, "D0_": method.adversaries.aligner}
    found = {"cdan_" if hasattr(method, "condition") else "": getattr(method, "discriminator", None)}
    found["A_"] = getattr(method, "auxiliary", None)
    return {prefix: module for prefix, module in found.items() if module is not None}


def method_tensors(method: methods.Method) -> dict[str, Tensor]:
    """Everything in the method that is stored, by its name in the file."""
    found: dict[str, Tensor] = {}
    for prefix, module in discriminators(method).items():
        tensors = [t for layer in linears(module) for t in (layer.weight, layer.bias)]
        found |= dict(zip((prefix + name for name in LAYERS), tensors, strict=True))
        norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d)]
        for i, norm in enumerate(norms, start=1):
            found |= norm_tensors(norm, f"bnd{i}", f"g{i}", f"be{i}")
    if hasattr(method, "discriminators"):
        for i, (weight, bias) in enumerate(zip(method.discriminators.weights, method.discriminators.biases), 1):
            found |= {f"san_W{i}": weight, f"san_b{i}": bias}
    return found


def initialise(file: Arrays, tensors: dict[str, Tensor]) -> None:
    """Copy the stored start; statistics of a discriminator's norms are not stored and start at 0 and 1."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not name.startswith("bnd"):
                tensor.copy_(torch.as_tensor(file[f"init/{name}"]))


# --- the settings of each program ----------------------------------------------------------------------------

FAMILY = {"ba3us": "ba3us", "baa": "baa", "edann": "e-dann"}
OTHERS = {
    "pada": "pada", "san": "san", "san_wt": "san", "etn": "etn", "cdan_e": "cdan+e",
    "cdan_transnorm": "cdan+transnorm", "safn": "safn", "iwan_tll": "iwan", "mcc_tll": "mcc",
    "adda_tll": "adda",
}  # fmt: skip


def method_name(v: str) -> str:
    """Our name of a stored program."""
    return OTHERS.get(v) or FAMILY[v.partition("_")[0]]


def settings(file: Arrays, v: str) -> dict[str, Any]:
    """Our options for a stored program."""

    def stored(name: str) -> float:
        return file[f"{v}/{name}"].item()

    slow = 10 * float(file["cfg/lr0"])  # the rate of new layers; the backbone has a tenth
    decaying = {"decay_gamma": float(file["cfg/gamma"]), "learning_rate": slow, "weight_decay": 5e-4}
    tll = decaying | {"weight_decay": 1e-3, "bottleneck_norm": True, "ramp_slope": 1.0}
    if v.partition("_")[0] in FAMILY:
        return decaying | {
            "weight_decay": 1e-3,
            "refresh_every": int(file["cfg/interval"]),
            "rho": 1 / stored("mu") if stored("mu") else 0.0,
            "beta": stored("cot_weight"),
            "alpha": float(file["cfg/ent_weight"]),
            "xi": float(file["cfg/xi"]),
            "weight_alignment": bool(stored("weight_aug")),
            "weight_source": bool(stored("weight_cls")),
            "released_quirks": bool(stored("eval_quirk")),
        }
    ramp = {"ramp_steps": int(stored("ramp_steps"))} if f"{v}/ramp_steps" in file else {}
    if v == "pada":
        own = {"tau": stored("tau"), "ramp_high": stored("high"), "refresh_every": int(stored("update_iter"))}
        return decaying | ramp | own
    if v == "san":
        return decaying | ramp | {"weighting": "batch", "entropy_weight": stored("entropy_trade_off")}
    if v == "san_wt":
        own = {"weighting": "target", "refresh_every": int(stored("update_iter"))}
        return decaying | ramp | own | {"entropy_weight": stored("entropy_trade_off")}
    if v == "cdan_e":
        return decaying | ramp | {"weight_decay": 1e-3, "product": "plain"}
    if v == "cdan_transnorm":
        own = {"product": "plain", "discriminator_ramp_steps": int(stored("ramp_steps_D"))}
        return decaying | ramp | own | {"weight_decay": 1e-3}
    rate = {"learning_rate": stored("lr0")}
    if v == "safn":
        constant = {"decay_gamma": 0.0, "backbone_scale": 1.0, "weight_decay": 5e-4, "dropout": 0.0}
        return constant | rate | {"norm_weight": stored("weight_L2norm")}
    if v == "etn":
        return rate | {
            "decay_gamma": 10.0,
            "decay_steps": 10000,
            "weight_decay": 5e-4,
            "ramp_steps": ramp["ramp_steps"] // 2,  # its counter advances twice per step
            "entropy_weight": stored("entropy_weight"),
            "auxiliary_domain": stored("aux_domain_weight"),
            "auxiliary_class": stored("aux_class_weight"),
            "freeze_stem_norm": True,
        }
    if v == "iwan_tll":
        return tll | rate | ramp | {"trade_off": stored("trade_off"), "entropy_weight": stored("gamma")}
    if v == "mcc_tll":
        own = {"confusion_weight": stored("trade_off"), "temperature": stored("temperature")}
        return {k: x for k, x in tll.items() if k != "ramp_slope"} | rate | own
    assert v == "adda_tll", v
    return tll | rate | ramp | {"generator": "reversed", "ramp_high": 2.0, "source_steps": 0}


def components(v: str, options: Any) -> dict[str, tuple[str, float]]:
    """Our history column, and the weight in it, for each stored component of the loss."""
    family = {"ent_loss": ("entropy", getattr(options, "alpha", 1.0))}
    if getattr(options, "beta", 0.0):
        family["aus_loss"] = ("uncertainty", options.beta)
    entropy = getattr(options, "entropy_weight", 0.0) or 1.0
    trade = getattr(options, "trade_off", 1.0)
    own = {
        "san": {"entropy_loss": ("entropy", entropy)},
        "etn": {
            "entropy_loss": ("entropy", entropy),
            "aux_domain_loss": ("auxiliary_domain", getattr(options, "auxiliary_domain", 1.0)),
            "aux_class_loss": ("auxiliary_class", getattr(options, "auxiliary_class", 1.0)),
        },
        "iwan": {
            "entropy_loss": ("entropy", entropy),
            "adv_loss_D": ("weighing", trade * getattr(options, "weigher_factor", 1.0)),
            "adv_loss_D0": ("alignment", trade),
        },
        "mcc": {"mcc_loss": ("confusion", getattr(options, "confusion_weight", 1.0))},
        "safn": {f"norm_loss_{domain}": (f"norm_{domain}", 1.0) for domain in ("source", "target")},
        "adda": {},
    }.get(v.partition("_")[0], family if v.partition("_")[0] in FAMILY else {})  # fmt: skip
    common = {"ce_loss": ("classification", 1.0), "adv_loss": ("alignment", 1.0), "total_loss": ("loss", 1.0)}
    return common | own


class Recorded:
    """Streams that play stored batches back."""

    def __init__(self, file: Arrays, v: str) -> None:
        self.file, self.v, self.step = file, v, 0

    def draw(self, source: int, target: int, borrowed: int) -> BatchIndices:
        i, self.step = self.step, self.step + 1
        rows = [self.file[f"{self.v}/{name}"][i] for name in ("src_idx", "tgt_idx")]
        count = int(self.file[f"{self.v}/K"][i]) if f"{self.v}/K" in self.file else 0
        assert (source, target, borrowed) == (len(rows[0]), len(rows[1]), count), f"step {i}"
        middle = self.file[f"{self.v}/mid_idx"][i][:count] if count else np.empty(0, dtype=np.int64)
        return BatchIndices(*rows, middle)


class Monitor(Callback):
    """Records running statistics and gradient norms at every step, and the state at every evaluation."""

    def __init__(self, tensors: dict[str, Tensor], gradients: list[str]) -> None:
        self.tensors, self.names = tensors, gradients
        self.running: dict[str, list[np.ndarray]] = {}
        self.norms: list[list[float]] = []
        self.evaluations: list[Any] = []
        self.state: dict[str, np.ndarray] = {}
        self.class_weights: list[np.ndarray] = []

    def on_gradients(self, trainer: Trainer, step: Any) -> None:
        self.norms.append([float(self.tensors[name].grad.norm()) for name in self.names])
        for name, tensor in self.tensors.items():
            if "_mean" in name or "_var" in name:
                self.running.setdefault(name, []).append(tensor.numpy().copy())
        if hasattr(trainer.method, "class_weights"):
            self.class_weights.append(trainer.method.class_weights.numpy().copy())

    def on_evaluation(self, trainer: Trainer, evaluation: Any) -> None:
        self.evaluations.append(evaluation)
        self.state = {name: t.detach().numpy().copy() for name, t in self.tensors.items()}


def train(file: Arrays, v: str, **changes: Any) -> tuple[Any, Monitor, Any]:
    """Run the real loop on a stored program."""
    entry = methods.get(method_name(v))
    updates, batch = file[f"{v}/src_idx"].shape
    family = f"{v}/eval_quirk" in file
    defaults = entry.options()
    sized = {"discriminator_hidden": len(file["init/W1"]), "discriminator_dropout": 0.0}
    sized = {name: value for name, value in sized.items() if hasattr(defaults, name)}
    steps = int(file["cfg/N"]) if family else updates
    given = (
        settings(file, v) | sized | {"steps": steps, "batch_size": batch, "bottleneck": len(file["init/Wb"])}
    )
    options = entry.options(**given | {"momentum": float(file["cfg/momentum"])} | changes)
    classes = int(file["cfg/C"])
    network = Network(Backbone(file), len(file["init/conv2_W"]), classes, entry.method.head(options)).double()
    for layer in network.bottleneck.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.eps, layer.momentum = float(file["cfg/bn_eps"]), float(file["cfg/bn_momentum"])
    initialise(file, network_tensors(network))
    method = entry.create(network, options).double()
    if v == "adda_tll":
        method.discriminator = NormedDiscriminator(len(file["init/Wb"]), len(file["init/W1"]))
    initialise(file, method_tensors(method))
    recipe = method.recipe()
    if v != "safn":
        decay = dataclasses.replace(recipe.decay, power=float(file["cfg/power"]))
        recipe = dataclasses.replace(recipe, decay=decay)
    if family:  # the release makes one more step after its last evaluation
        (phase,) = recipe.phases
        recipe = dataclasses.replace(recipe, phases=(dataclasses.replace(phase, steps=updates, horizon=steps),))
    tensors = network_tensors(network) | method_tensors(method)
    monitor = Monitor(tensors, file[f"{v}/grad_names"].tolist())
    run = Execution(precision="64-true", log_every=1, n_threads=1)
    trainer = Trainer(network, method, run, recipe=recipe, streams=Recorded(file, v), callbacks=[monitor])
    source = Source(file["data/Xs"], file["data/ys"], num_classes=classes)
    result = trainer.fit(source, Target(file["data/Xt"])).use("last")
    return result, monitor, options


PROGRAMS = [
    "ba3us", "ba3us_k1", "ba3us_trainmode", "baa", "baa_trainmode", "edann", "edann_trainmode", *OTHERS,
]  # fmt: skip


def test_every_stored_program_is_run(file):
    assert {name.split("/")[0] for name in file if name.endswith("/src_idx")} == set(PROGRAMS)


@pytest.mark.parametrize("v", PROGRAMS)
def test_training(file, v):
    if f"{v}/src_idx" not in file:
        pytest.skip(f"no {v} in the file")
    result, monitor, options = train(file, v)
    rtol = FAMILY_RTOL if f"{v}/eval_quirk" in file else RTOL
    for name, values in monitor.running.items():  # the first place where a wrong pass shows
        close(np.stack(values), file[f"{v}/run_{name}"], rtol, what=f"{v}/run_{name}")
    history = result.history
    for name, (column, weight) in components(v, options).items():
        if f"{v}/{name}" in file and column in history:
            close(history[column].to_numpy() / weight, file[f"{v}/{name}"], rtol, what=f"{v}/{name}")
    scales = [group.lr_scale for group in result.recipe.groups]
    rates = np.outer(history["lr"], [scales[0], *[scales[1]] * (file[f"{v}/lr"].shape[1] - 1)])
    close(rates, file[f"{v}/lr"], rtol, what=f"{v}/lr")
    close(monitor.norms, file[f"{v}/grad_norms"], rtol, what=f"{v}/grad_norms")
    if f"{v}/lambda_grl" in file and "lambda" in history and file[f"{v}/lambda_grl"].ndim == 1:
        close(history["lambda"].to_numpy(), file[f"{v}/lambda_grl"], rtol, what=f"{v}/lambda_grl")
    if f"{v}/class_weight_used" in file:
        ours, theirs = np.stack(monitor.class_weights), file[f"{v}/class_weight_used"]
        close(
            ours / ours.sum(1, keepdims=True), theirs / theirs.sum(1, keepdims=True), rtol, what="class weights"
        )
    if f"{v}/eval_quirk" in file:
        assert [e.step for e in monitor.evaluations] == file[f"{v}/refresh_iter"].tolist()
        means = np.stack([e.mean_probabilities for e in monitor.evaluations])
        close(means, file[f"{v}/class_weight"], rtol, what=f"{v}/class_weight")
        entropies = [e.scores["entropy"] for e in monitor.evaluations]
        close(entropies, file[f"{v}/mean_entropy"], rtol, what=f"{v}/mean_entropy")
    for prefix, state in {"after_N_": monitor.state, "final_": monitor.tensors}.items():
        for name, tensor in state.items():
            if f"{v}/{prefix}{name}" in file:
                close(tensor, file[f"{v}/{prefix}{name}"], rtol, what=f"{v}/{prefix}{name}")
    logits = result.predict(Target(file["data/Xt"])).logits
    close(logits, file[f"{v}/final_logits"], rtol, what=f"{v}/final_logits")


def off(file: Arrays, v: str, **changes: Any) -> float:
    """By how much the final logits differ from the stored ones."""
    result, *_ = train(file, v, **changes)
    theirs = file[f"{v}/final_logits"]
    ours = result.predict(Target(file["data/Xt"])).logits.numpy()
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("v", ["ba3us", "ba3us_k1"])
def test_the_quirks_of_the_release_change_numbers(file, v):
    assert off(file, v, released_quirks=False) > 1e-3


def test_the_norm_of_the_stem_and_the_ramp_of_transnorm_matter(file):
    assert off(file, "etn", freeze_stem_norm=False) > 1e-3
    same = int(file["cdan_transnorm/ramp_steps"])
    assert off(file, "cdan_transnorm", discriminator_ramp_steps=same) > 1e-4


@pytest.mark.parametrize("v", ["iwan_tll", "mcc_tll", "pada"])
def test_passing_the_domains_apart_changes_numbers(file, v, monkeypatch):
    monkeypatch.setattr(methods.get(method_name(v)).method, "joint", False)
    assert off(file, v) > 1e-3
