"""Models taken apart and put together again: blueprints, safetensors files, damage."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ba3us import methods
from ba3us.data import Target
from ba3us.errors import UserError
from ba3us.run.arrays import ArraySamples
from ba3us.run.build import Blueprint, Model, _digest
from ba3us.run.images import ImageSamples
from ba3us.training import Execution
from toys import CLASSES, WIDTH, blobs, fit, options_for, same_state

ON_FEATURES = [e.name for e in methods.entries() if "pixels" not in e.info.needs]


def trained(name: str = "ba3us") -> tuple[Model, Target]:
    source, target, _ = blobs()
    options = options_for(name)
    result = fit(name, source, target, options=options, config=Execution(n_threads=1))
    config = methods.get(name).options(**options)
    blueprint = Blueprint.of(name, config, [*"abcd"], ArraySamples([WIDTH]))
    assert len(blueprint.classes) == CLASSES
    return Model(blueprint, result.module), target


def logits(model: Model, target: Target) -> torch.Tensor:
    return torch.cat([z for _, z in model.outputs(target, batch_size=7)])


@pytest.mark.parametrize("name", ON_FEATURES)
def test_every_method_goes_through_a_file(name, tmp_path):
    model, target = trained(name)
    model.save(tmp_path / "m.safetensors")
    again = Model.load(tmp_path / "m.safetensors")
    assert dataclasses.asdict(again.blueprint) == dataclasses.asdict(model.blueprint)
    assert same_state(again.module.state_dict(), model.module.state_dict())
    tensors = [*again.module.parameters(), *again.module.buffers()]
    assert not any(t.is_meta for t in tensors)
    assert torch.equal(logits(again, target), logits(model, target))
    assert again.feature_dim == model.feature_dim


def test_outputs_do_not_depend_on_the_batch_size():
    model, target = trained()
    whole = torch.cat([z for _, z in model.outputs(target)])
    assert torch.allclose(whole, logits(model, target), atol=1e-6)


def test_consuming_outputs_leaves_gradients_switched_on():
    model, target = trained()
    for _ in model.outputs(target, batch_size=7):
        assert torch.is_grad_enabled()


def test_later_defaults_do_not_change_a_blueprint():
    config = methods.get("ba3us").options(beta=2.0)
    for samples in (ArraySamples([3]), ImageSamples("resnet50", "0f", "tail", 224, [0.1] * 3, [0.2] * 3)):
        blueprint = Blueprint.of("ba3us", config, ["a", 1], samples)
        assert set(blueprint.options) == {f.name for f in dataclasses.fields(config)}
        assert Blueprint.from_dict(json.loads(json.dumps(blueprint.to_dict()))) == blueprint


def test_a_saved_model_has_the_permissions_of_any_new_file(tmp_path):
    model, _ = trained()
    model.save(tmp_path / "m.safetensors")
    (tmp_path / "plain").write_text("")
    assert os.stat(tmp_path / "m.safetensors").st_mode == os.stat(tmp_path / "plain").st_mode


# --- damage -----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    model, _ = trained()
    path = tmp_path / "m.safetensors"
    model.save(path)
    return path


def rewrite(path, change):
    """Save the file again with a changed header or changed tensors."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = json.loads(json.loads(file.metadata()["ba3us"])["header"])
    state = load_file(path)
    change(header, state)
    text = json.dumps(header)
    save_file(state, path, {"ba3us": json.dumps({"header": text, "digest": _digest(text, state)})})


def test_any_changed_bit_is_noticed(saved):
    """The length of the header, the header, its blanks and every tensor."""
    whole, g = saved.read_bytes(), np.random.default_rng(0)
    for at in g.choice(len(whole), 60, replace=False):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(g.integers(8))
        saved.write_bytes(changed)
        with pytest.raises(UserError, match=r"damaged|no model of ba3us|Unknown"):
            Model.load(saved)


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_file_cut_short_is_a_sentence(saved, size):
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(UserError, match=r"can't be read \(.*\): it is damaged; adapt again\.$"):
        Model.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, s: h["blueprint"]["samples"].update(shape=[WIDTH + 1]),
        lambda h, s: h["blueprint"]["samples"].update(shape=[10**15]),  # nothing is allocated for it
        lambda h, s: h["blueprint"].update(classes="four"),
        lambda h, s: h["blueprint"]["samples"].update(extra=1),
        lambda h, s: h["blueprint"].update(method=["ba3us"]),
        lambda h, s: h["blueprint"]["options"].update(discriminator_hidden=10**12),
        lambda h, s: h.pop("blueprint"),
        lambda h, s: s.pop("network.classifier.weight"),
        lambda h, s: s.update(more=torch.zeros(1)),
    ],
)
def test_headers_and_tensors_that_do_not_fit_are_a_sentence(saved, change):
    rewrite(saved, change)
    with pytest.raises(UserError, match=r"it is damaged; adapt again|Option .* must be"):
        Model.load(saved)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h, s: h["blueprint"].update(method="ba4us"), "Unknown method 'ba4us': did you mean 'ba3us'"),
        (lambda h, s: h["blueprint"]["options"].update(gama=1), "Unknown option 'gama'"),
        (lambda h, s: h.update(format="ba3us model 99"), "of another version"),
    ],
)
def test_a_model_of_another_version_says_what_is_unknown(saved, change, sentence):
    rewrite(saved, change)
    with pytest.raises(UserError, match=sentence):
        Model.load(saved)


def test_other_safetensors_files_are_not_models(tmp_path):
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="is not a model of ba3us"):
        Model.load(tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="There is no model file"):
        Model.load(tmp_path / "none.safetensors")


def test_a_pickled_model_holds_arrays_only():
    model, _ = trained("shot")
    state = model.__getstate__()
    assert all(isinstance(v, np.ndarray) for v in state["state"].values())
    assert isinstance(state["blueprint"], Blueprint)
