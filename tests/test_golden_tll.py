"""Parity with TLL's adversarial losses and with TransNorm, and the schedules of all adversarial programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us import losses, methods
from ba3us.methods.base import DomainOutputs, Outputs, Step
from ba3us.methods.shared import sample_weights, target_mass
from ba3us.nn import TransNorm1d, TransNorm2d, reverse_gradient
from ba3us.schedules import InverseDecay, ramp
from golden_tools import (
    LAYERS,
    bare_method,
    check_discriminator,
    check_gradients,
    close,
    joint_leaves,
    set_weights,
    tensor,
)

pytestmark = pytest.mark.usefixtures("float64")


# --- IWAN -------------------------------------------------------------------------------------------------


def test_iwan(golden):
    file = golden("iwan_tll")
    gamma, trade_off = float(file["gamma"]), float(file["trade_off"])
    for j in range(int(file["n_cases"])):
        features, logits, outputs = joint_leaves(file)
        method = bare_method(
            "iwan",
            features.shape[1],
            logits.shape[1],
            protocol="office31",
            discriminator_hidden=len(file["D_W1"]),
            trade_off=trade_off,
            entropy_weight=gamma,
        )
        set_weights(method.adversaries.weigher.parameters(), [file[f"D_{name}"] for name in LAYERS])
        set_weights(method.adversaries.aligner.parameters(), [file[f"D0_{name}"] for name in LAYERS])
        step = Step(int(file[f"c{j}/iteration"]), 1)
        terms = method.losses(outputs, step)
        total = sum(terms.values())
        total.backward()
        named = {
            "coeff_grl": method.log_scalars(step)["lambda"],
            "weight": sample_weights(method.adversaries.weigher(outputs.source.features), 1e-5),
            "ce_loss": terms["classification"],
            "adv_loss_D": terms["weighing"] / (1.5 * trade_off),
            "adv_loss_D0": terms["alignment"] / trade_off,
            "entropy_loss": terms["entropy"] / gamma,
            "total_loss": total,
        }
        for name, value in named.items():
            close(value, file[f"c{j}/{name}"], what=f"c{j}/{name}")
        check_gradients(file, f"c{j}/grad_", {"features": features, "logits": logits})
        check_discriminator(file, f"c{j}/grad_D_", method.adversaries.weigher)
        check_discriminator(file, f"c{j}/grad_D0_", method.adversaries.aligner)


# --- TLL's losses without batch norm ----------------------------------------------------------------------


def tll_case(file, j, f_source, f_target):
    """The loss of a stored case, its discriminator, and λ, from the real methods where they have the case."""
    z_source, z_target = tensor(file["logits"]).tensor_split([len(f_source)])
    source = DomainOutputs(f_source, z_source, torch.arange(len(f_source)), tensor(file["labels_source"]))
    target = DomainOutputs(f_target, z_target, torch.arange(len(f_target)))
    step = Step(int(file[f"c{j}/iteration"]), 1)
    ramps = {"ramp_high": float(file[f"c{j}/hi"]), "ramp_slope": 1.0, "ramp_steps": 1000}
    width, classes, hidden = f_source.shape[1], z_source.shape[1], len(file["W1"])
    if file[f"c{j}/kind"] == "adda_grl":
        method = bare_method("adda", width, classes, protocol="office31", discriminator_hidden=hidden, **ramps)
        reversal = method.options.reversal(step, ahead=0)
    else:  # TLL's λ counts from 0, so ours is one step behind
        method = bare_method("dann", width, classes, discriminator_hidden=hidden, **ramps)
        step = Step(step.number - 1, 1)
        reversal = method.options.reversal(step)
    set_weights(method.discriminator.parameters(), [file[name] for name in LAYERS])
    if file[f"c{j}/weighted"]:
        scores = [method.discriminator(reverse_gradient(f, reversal)) for f in (f_source, f_target)]
        weights = tensor(file["w_source"]), tensor(file["w_target"])
        return losses.adversarial_loss(*scores, *weights), method.discriminator, reversal
    nobody = DomainOutputs(f_source[:0], z_source[:0], source.rows[:0], source.labels[:0])
    return method.losses(Outputs(source, target, nobody), step)["alignment"], method.discriminator, reversal


def test_tll_adversarial(golden):
    file = golden("tll_adversarial")
    plain = [j for j in range(int(file["n_cases"])) if not file[f"c{j}/batch_norm"]]
    assert plain
    for j in plain:
        b = int(file["B"])
        f_source, f_target = (tensor(f, grad=True) for f in (file["features"][:b], file["features"][b:]))
        loss, discriminator, reversal = tll_case(file, j, f_source, f_target)
        loss.backward()
        close(loss, file[f"c{j}/loss"], what=f"c{j}/loss")
        close(reversal, file[f"c{j}/coeff_grl"], what=f"c{j}/coeff_grl")
        leaves = {"features_source": f_source, "features_target": f_target}
        check_gradients(file, f"c{j}/grad_", {k: v for k, v in leaves.items() if f"c{j}/grad_{k}" in file})
        check_discriminator(file, f"c{j}/grad_", discriminator)


def test_adda_with_inverted_labels(golden):
    file = golden("tll_adversarial")
    features, logits, outputs = joint_leaves(file)
    options = {"discriminator_hidden": len(file["W1"]), "encoder_weight": 1.0}
    method = bare_method("adda", features.shape[1], logits.shape[1], **options)
    set_weights(method.discriminator.parameters(), [file[name] for name in LAYERS])
    terms = method.losses(outputs, Step(0, 1))
    close(terms["discriminator"], file["adda_inv/loss_D_half_sum"])
    close(terms["alignment"], file["adda_inv/loss_F"])
    sum(terms.values()).backward()  # one backward serves both players
    check_discriminator(file, "adda_inv/grad_D_", method.discriminator)
    b = int(file["B"])
    close(features.grad[b:], file["adda_inv/grad_features_target"])
    assert not features.grad[:b].any()


def test_tll_class_weights(golden):
    """TLL's PADA takes max-normalised class weights of softmax(logits / T); its discriminator is not ours."""
    file = golden("tll_adversarial")
    everything = tensor(file["target_logits_all"])
    target = DomainOutputs(everything, everything, torch.arange(len(everything)))
    cases = sorted({name.split("/")[0] for name in file if name.startswith("pada")})
    assert cases
    for v in cases:
        mass = target_mass(target, 1 / float(file[f"{v}/temperature"]))
        weights = mass / mass.max()
        close(weights, file[f"{v}/class_weight"], what=v)
        _, logits, outputs = joint_leaves(file)
        w = weights[outputs.source.labels]
        close(w, file[f"{v}/w_source"], what=v)
        loss = losses.weighted_cross_entropy(outputs.source.logits, outputs.source.labels, w)
        loss.backward()
        close(loss, file[f"{v}/ce_loss"], what=v)
        check_gradients(file, f"{v}/grad_", {"logits": logits})


def test_tll_cdan(golden):
    file = golden("tll_adversarial")
    cases = sorted({name.split("/")[0] for name in file if name.endswith("/entropy_conditioning")})
    assert cases
    for v in cases:
        features, logits, outputs = joint_leaves(file)
        method = bare_method(
            "cdan",
            features.shape[1],
            logits.shape[1],
            discriminator_hidden=len(file["cdan_D/W1"]),
            entropy_weights=bool(file[f"{v}/entropy_conditioning"]),
            form="tll",
            product="plain",
        )
        set_weights(method.discriminator.parameters(), [file[f"cdan_D/{name}"] for name in LAYERS])
        loss = method.alignment(outputs, ramp(int(file[f"{v}/iteration"]), 1000, slope=1.0), 1.0)
        loss.backward()
        close(loss, file[f"{v}/loss"], what=v)
        check_gradients(file, f"{v}/grad_", {"features": features, "logits": logits})
        check_discriminator(file, f"{v}/grad_", method.discriminator)


# --- TransNorm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("v", "kind"), [("tn1d", TransNorm1d), ("tn2d", TransNorm2d)])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-7), (torch.float32, 1e-5)])
def test_transnorm(golden, v, kind, dtype, rtol):
    file = golden("transnorm")
    layer = kind(len(file[f"{v}/gamma"]), float(file[f"{v}/eps"]), float(file[f"{v}/momentum"])).to(dtype)
    set_weights((layer.weight, layer.bias), (file[f"{v}/gamma"], file[f"{v}/beta"]))
    atol = 1e-8 if dtype == torch.float64 else 1e-6
    running = [f"running_{what}_{domain}" for what in ("mean", "var") for domain in ("source", "target")]
    set_weights((getattr(layer, name) for name in running), (file[f"{v}/init_{name}"] for name in running))

    def passed(x, cotangent, out, grads):
        x = tensor(file[f"{v}/{x}"], dtype, grad=True)
        layer.zero_grad()
        value = layer(x)
        (value * tensor(file[f"{v}/{cotangent}"], dtype)).sum().backward()
        close(value, file[f"{v}/{out}"], rtol, what=f"{v}/{out}")
        leaves = {"x": x, "gamma": layer.weight, "beta": layer.bias}
        for name, leaf in leaves.items():
            close(leaf.grad, file[f"{v}/{grads}_{name}"], rtol, atol, f"{v}/{grads}_{name}")

    passed("x", "cotangent", "train_out", "grad")
    for name in running:
        close(getattr(layer, name), file[f"{v}/new_{name}"], rtol, what=f"{v}/new_{name}")
    layer.eval()
    passed("eval_x", "eval_cotangent", "eval_out", "eval_grad")


# --- schedules --------------------------------------------------------------------------------------------


def test_schedules(golden):
    """Through the published settings: what each program does at an update, our configuration does."""
    file = golden("schedules")
    steps = file["iterations"].tolist()

    def reversals(name, ahead=1.0, **options):
        config = methods.get(name).options("office-home", **options)
        return [config.reversal(Step(i, config.steps), ahead) for i in steps]

    def rates(name, lr0, scales, task=None):
        config = methods.get(name).options("office31", task, learning_rate=float(lr0), backbone_scale=0.1)
        recipe = bare_method(name, 3, 4, protocol="office31").recipe()
        assert recipe.decay == InverseDecay(config.decay_gamma, period=config.decay_steps)
        return np.outer([config.learning_rate * recipe.decay(i) for i in steps], scales)

    for name in ("cdan", "pada"):
        close(rates(name, file[f"{name}/lr0"], (1, 10)), file[f"{name}/lr"], what=name)
    close(
        np.full((len(steps), 2), methods.get("cdan").options("office31").weight_decay),
        file["cdan/weight_decay"],
    )
    close(reversals("cdan", ahead=0), file["cdan/grl_lambda"])
    close(reversals("cdan"), file["cdan/discriminator_lambda"])
    for name in ("pada", "san"):
        highs = [key for key in file if key.startswith(f"{name}/grl_high_")]
        assert highs
        for key in highs:
            close(reversals(name, ramp_high=float(key.rsplit("_", 1)[1])), file[key], what=key)
    close(rates("etn", file["etn/lr0"], (1,))[:, 0], file["etn/lr"])
    config = methods.get("etn").options("office-home")
    # the k-th discriminator call belongs to update k/2
    close([config.reversal(Step(k / 2, 1), ahead=0) for k in steps], file["etn/grl_by_call"])
    for key in (key for key in file if key.startswith("tll/grl_hi_")):
        high = float(key.rsplit("_", 1)[1])
        close(reversals("adda", ahead=0, ramp_high=high), file[key], what=key)
        close(reversals("iwan", ahead=0, ramp_high=high), file[key], what=key)
    close(rates("iwan", file["tll/lr0"], (0.1, 1)), file["tll/lr_gamma_0.001"])
    close(rates("adda", file["tll/lr0"], (0.1, 1)), file["tll/lr_gamma_0.0003"])
