"""Parity of CDAN, PADA, SAN and ETN with the original programs, through the real losses, methods and loop."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from ba3us import losses, methods
from ba3us.data import BatchIndices, Source, Target
from ba3us.methods.base import DomainOutputs, Outputs, Step
from ba3us.methods.etn import leaky_log_softmax, leaky_scores
from ba3us.methods.shared import sample_weights
from ba3us.nn import DiscriminatorBank, Network
from ba3us.training import Callback, Execution, Trainer
from golden_tools import (
    LAYERS,
    bare_method,
    check_discriminator,
    check_gradients,
    close,
    joint_leaves,
    linears,
    named_parameters,
    set_weights,
    tensor,
)

pytestmark = pytest.mark.usefixtures("float64")
PRECISIONS = [(torch.float64, 1e-7), (torch.float32, 1e-5)]


# --- CDAN -------------------------------------------------------------------------------------------------


def cdan_case(file, j, outputs, dtype):
    """The method of a stored case with its weights, and its alignment term."""
    kind, rate = int(file[f"c{j}/kind"]), float(file[f"c{j}/coeff_grl"])
    folder = ("full", "rand", "dann")[kind]
    width, classes = outputs.source.features.shape[1], outputs.source.logits.shape[1]
    options = {"discriminator_hidden": len(file[f"{folder}/W1"]), "dtype": dtype}
    if kind == 2:  # far along its ramp, λ is the ramp's upper value
        method = bare_method("dann", width, classes, **options, ramp_high=rate)
    else:
        options |= {"product": ("plain", "random")[kind], "random_dims": file["R_f"].shape[1]}
        method = bare_method("cdan+e" if file[f"c{j}/use_entropy"] else "cdan", width, classes, **options)
    set_weights(method.discriminator.parameters(), [file[f"{folder}/{name}"] for name in LAYERS])
    if kind == 1:
        buffers = (method.condition.random_features, method.condition.random_classes)
        set_weights(buffers, (file["R_f"], file["R_p"]))
    if kind == 2:
        return method, method.losses(outputs, Step(10**6, 1))["alignment"]
    return method, method.alignment(outputs, rate, float(file[f"c{j}/coeff_entropy"]))


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
def test_cdan(golden, dtype, rtol):
    file = golden("cdan")
    for j in range(int(file["n_cases"])):
        features, logits, outputs = joint_leaves(file, dtype)
        method, loss = cdan_case(file, j, outputs, dtype)
        loss.backward()
        close(loss, file[f"c{j}/loss"], rtol, what=f"c{j}/loss")
        check_gradients(file, f"c{j}/grad_", {"features": features, "logits": logits}, rtol)
        check_discriminator(file, f"c{j}/grad_", method.discriminator, rtol)
        if hasattr(method, "condition"):
            features = method.condition(features, logits)
        close(torch.sigmoid(method.discriminator(features)), file[f"c{j}/d_out"], rtol, what=f"c{j}/d_out")
        ce = method.losses(outputs, Step(0, 1))["classification"]
        close(ce, file["ce"], rtol, what="ce")
    close(losses.entropy(tensor(file["logits"]), 1e-5), file["entropy_eps1e5"])


# --- PADA -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
def test_pada(golden, dtype, rtol):
    file = golden("pada")
    crops = tensor(file["target_crop_logits"], dtype)
    for j in range(int(file["n_cases"])):
        features, logits, outputs = joint_leaves(file, dtype)
        options = {"tau": float(file[f"c{j}/tau"]), "ramp_high": float(file[f"c{j}/high"])}
        hidden, width = file["W1"].shape
        method = bare_method(
            "pada", width, logits.shape[1], dtype, protocol="office31", discriminator_hidden=hidden, **options
        )
        set_weights(method.discriminator.parameters(), [file[name] for name in LAYERS])
        if not file[f"c{j}/initial"]:
            method.refresh(DomainOutputs(crops[0], crops[-1], torch.arange(1), extra={"views": crops}))
        weights = method.class_weights / method.class_weights.mean()
        close(weights, file[f"c{j}/class_weight"], rtol, what=f"c{j}/class_weight")
        step = Step(int(file[f"c{j}/grl_iteration"]) - 1, 1)
        close(method.log_scalars(step)["lambda"], file[f"c{j}/coeff_grl"], rtol, what=f"c{j}/coeff_grl")
        terms = method.losses(outputs, step)
        total = sum(terms.values())
        total.backward()
        named = {"adv_loss": terms["alignment"], "ce_loss": terms["classification"], "total_loss": total}
        for name, value in named.items():
            close(value, file[f"c{j}/{name}"], rtol, what=f"c{j}/{name}")
        check_gradients(file, f"c{j}/grad_", {"features": features, "logits": logits}, rtol)
        check_discriminator(file, f"c{j}/grad_", method.discriminator, rtol)
    scaled = tensor(file["logits"]) * float(file["entropy_loss_logit_scale"])
    close(losses.entropy(scaled, floor=1e-6).mean(), file["entropy_loss_probs_mask1e6"])


class Recorded:
    """Streams that play stored batch indices back."""

    def __init__(self, file):
        self.file, self.step = file, 0

    def draw(self, source, target, borrowed):
        i, self.step = self.step, self.step + 1
        s, t = self.file["src_idx"][i], self.file["tgt_idx"][i]
        assert (source, target, borrowed) == (len(s), len(t), 0)
        return BatchIndices(s, t, np.empty(0, dtype=np.int64))


class Weights(Callback):
    """Writes down the class weights of every update."""

    def __init__(self):
        self.weights = []

    def on_step(self, trainer, step):
        m = trainer.method.class_weights
        self.weights.append((m / m.mean()).tolist())


@pytest.mark.parametrize(("precision", "rtol"), [("64-true", 1e-7), ("32-true", 5e-5)])
def test_pada_trajectory(golden, precision, rtol):
    file = golden("pada_trajectory")
    names = ("Wf", "bf", "Wb", "bb", "Wc", "bc", *LAYERS)
    hidden_f, width = file["init/Wf"].shape
    entry = methods.get("pada")
    config = entry.options(
        protocol="office31",
        steps=int(file["cfg/N"]),
        refresh_every=int(file["cfg/update_iter"]),
        batch_size=int(file["cfg/B"]),
        bottleneck=len(file["init/Wb"]),
        learning_rate=10 * float(file["cfg/lr0"]),
        weight_decay=float(file["cfg/weight_decay"]),
        momentum=float(file["cfg/momentum"]),
        decay_gamma=float(file["cfg/gamma"]),
        tau=float(file["cfg/tau"]),
        ramp_high=float(file["cfg/high"]),
        discriminator_hidden=len(file["init/W1"]),
        discriminator_dropout=0.0,
    )
    backbone = nn.Sequential(nn.Linear(width, hidden_f), nn.ReLU())
    network = Network(backbone, hidden_f, int(file["cfg/C"]), entry.method.head(config))
    method = entry.create(network, config)
    modules = [backbone[0], network.bottleneck, network.classifier, *linears(method.discriminator)]
    parameters = named_parameters(modules)
    set_weights(parameters, [file[f"init/{name}"] for name in names])
    recipe = method.recipe()
    decay = dataclasses.replace(recipe.decay, power=float(file["cfg/power"]))
    recipe = dataclasses.replace(recipe, decay=decay)
    watch = Weights()
    run = Execution(precision=precision, log_every=1, n_threads=1)
    trainer = Trainer(network, method, run, recipe=recipe, streams=Recorded(file), callbacks=[watch])
    if precision == "32-true":
        trainer.module.float()
    source = Source(file["data/Xs"], file["data/ys"], num_classes=int(file["cfg/C"]))
    result = trainer.fit(source, Target(file["data/Xt"], views=file["data/Xt_crops"])).use("last")
    history = result.history
    columns = {
        "adv_loss": history["alignment"],
        "ce_loss": history["classification"],
        "total_loss": history["loss"],
        "coeff_grl": history["lambda"],
    }
    for name, column in columns.items():
        close(column.to_numpy(), file[name], rtol, what=name)
    scales = [recipe.groups[0].lr_scale, 1.0, 1.0, 1.0]
    close(np.outer(history["lr"], scales), file["lr"], rtol, what="lr")
    close(watch.weights, file["class_weight"], rtol, what="class_weight")
    for name, parameter in zip(names, parameters, strict=True):
        close(parameter, file[f"final/{name}"], rtol, what=f"final/{name}")


# --- SAN --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
def test_san(golden, dtype, rtol):
    file = golden("san")
    classes, hidden, width = file["W1"].shape
    crops = tensor(file["target_crop_logits"], dtype)
    trade_off = float(file["entropy_trade_off"])
    for j in range(int(file["n_cases"])):
        features, logits, outputs = joint_leaves(file, dtype)
        mode = int(file[f"c{j}/mode"])
        options = {"weighting": "batch" if mode == 0 else "target", "entropy_weight": trade_off}
        method = bare_method("san", width, classes, protocol="office31", discriminator_hidden=hidden, **options)
        method.discriminators = DiscriminatorBank(classes, width, (hidden, hidden), dropout=0.0)
        method = method.to(dtype)
        bank = method.discriminators
        stored = [p for pair in zip(bank.weights, bank.biases) for p in pair]
        set_weights(stored, [file[name] for name in LAYERS])
        if mode == 1:
            method.refresh(DomainOutputs(crops[0], crops[-1], torch.arange(1), extra={"views": crops}))
        step = Step(int(file[f"c{j}/grl_iteration"]) - 1, 1)
        terms = method.losses(outputs, step)
        total = sum(terms.values())
        total.backward()
        named = {
            "adv_loss": terms["alignment"],
            "entropy_loss": terms["entropy"] / trade_off,
            "ce_loss": terms["classification"],
            "total_loss": total,
            "class_weight": method.class_weights,
            "coeff_grl": method.log_scalars(step)["lambda"] * method.class_weights,
        }
        for name, value in named.items():
            close(value, file[f"c{j}/{name}"], rtol, what=f"c{j}/{name}")
        leaves = {"features": features, "logits": logits} | dict(zip(LAYERS, stored))
        check_gradients(file, f"c{j}/grad_", leaves, rtol)


# --- ETN --------------------------------------------------------------------------------------------------


def test_leaky_softmax(golden):
    file = golden("etn")
    logits = tensor(file["leaky/logits"], grad=True)
    u, s = leaky_log_softmax(logits).exp(), leaky_scores(logits).sigmoid()[:, None]
    assert logits.shape[1] == int(file["leaky/coeff"])
    close(u, file["leaky/u"])
    close(s, file["leaky/s"])
    ((u * tensor(file["leaky/cot_u"])).sum() + (s * tensor(file["leaky/cot_s"])).sum()).backward()
    close(logits.grad, file["leaky/grad_logits"])


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
def test_etn(golden, dtype, rtol):
    file = golden("etn")
    for j in range(int(file["n_cases"])):
        case = {
            name: file[f"c{j}/{name}"] for name in ("entropy_weight", "aux_domain_weight", "aux_class_weight")
        }
        names = ("features_source", "features_target", "logits_source", "logits_target")
        leaves = {name: tensor(file[name], dtype, grad=True) for name in names}
        f_source, f_target, z_source, z_target = leaves.values()
        source = DomainOutputs(f_source, z_source, torch.arange(len(f_source)), tensor(file["labels_source"]))
        target = DomainOutputs(f_target, z_target, torch.arange(len(f_target)))
        hidden, width = file["D_W1"].shape
        method = bare_method(
            "etn",
            width,
            z_source.shape[1],
            dtype,
            protocol="office-home",
            discriminator_hidden=hidden,
            entropy_weight=float(case["entropy_weight"]),
            auxiliary_domain=float(case["aux_domain_weight"]),
            auxiliary_class=float(case["aux_class_weight"]),
        )
        set_weights(method.discriminator.parameters(), [file[f"D_{name}"] for name in LAYERS])
        set_weights(method.auxiliary.parameters(), [file[f"A_{name}"] for name in LAYERS])
        # the original counts two discriminator calls per update
        step = Step(file[f"c{j}/grl_step_source"] / 2, 1)
        c = method.options
        close(c.reversal(step, ahead=0), file[f"c{j}/coeff_grl_source"], rtol)
        close(c.reversal(step, ahead=0.5), file[f"c{j}/coeff_grl_target"], rtol)
        terms = method.losses(Outputs(source, target, source), step)
        total = sum(terms.values())
        total.backward()
        named = {
            "ce_loss": terms["classification"],
            "adv_loss": terms["alignment"],
            "entropy_loss": terms["entropy"] / c.entropy_weight,
            "aux_domain_loss": terms["auxiliary_domain"] / c.auxiliary_domain,
            "aux_class_loss": terms["auxiliary_class"] / c.auxiliary_class,
            "total_loss": total,
            "weight": sample_weights(leaky_scores(method.auxiliary(f_source)), 1e-10),
            "u_source": leaky_log_softmax(method.auxiliary(f_source)).exp(),
            "s_source": leaky_scores(method.auxiliary(f_source)).sigmoid(),
            "s_target": leaky_scores(method.auxiliary(f_target)).sigmoid(),
            "d_source": method.discriminator(f_source).sigmoid(),
            "d_target": method.discriminator(f_target).sigmoid(),
        }
        for name, value in named.items():
            close(value, file[f"c{j}/{name}"], rtol, what=f"c{j}/{name}")
        check_gradients(file, f"c{j}/grad_", leaves, rtol)
        check_discriminator(file, f"c{j}/grad_D_", method.discriminator, rtol)
        check_discriminator(file, f"c{j}/grad_A_", method.auxiliary, rtol)
