"""Training part of a backbone: kept activations give the losses of running the frozen part each time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ba3us import methods
from ba3us.data.activations import FrozenSource, FrozenTarget
from ba3us.nn import Network
from ba3us.nn.backbones import Backbone, Frozen, cut
from ba3us.training import Callback, Execution, Trainer
from image_toys import image_domains, toy_backbone
from toys import assert_same_run, options_for, same_state

pytest.importorskip("timm", reason="needs the vision extra")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))


def parts(train, name="test_resnet"):
    module, dim = toy_backbone(name)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for buffer_name, buffer in module.named_buffers():  # batch norm that does something in eval mode
            if buffer_name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
    return cut(Backbone(name, module, dim, (0,) * 3, (1,) * 3, 32, None), train), dim


def trainer(backbone, dim, run=None, callbacks=(), method="ba3us", **options):
    entry = methods.get(method)
    config = entry.options(**options_for(method, **{"steps": 4, "refresh_every": 2, "batch_size": 4} | options))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(backbone, dim, 3, entry.method.head(config))
        built = entry.create(network, config)
    return Trainer(
        network, built, run or Execution(n_threads=1, log_every=1, predict_batch=5), callbacks=callbacks
    )


def kept(piece, **options):
    source, target = image_domains(views=2)
    return FrozenSource(source, piece.front, **options), FrozenTarget(target, piece.front, **options)


@pytest.mark.parametrize(
    ("train", "activations", "tolerance"),
    [
        ("tail", "float32", 1e-4),
        ("head", "float32", 1e-4),
        ("layer2", "float32", 1e-4),
        ("tail", "float16", 2e-2),
    ],
)
def test_same_losses_as_running_the_frozen_part(train, activations, tolerance):
    piece, dim = parts(train)
    each_time = nn.Sequential(Frozen(piece.front), piece.body)
    plain = trainer(each_time, dim).fit(*image_domains(views=2))
    piece, dim = parts(train)
    cached = trainer(piece.body, dim).fit(*kept(piece, activations=activations))
    a, b = plain.history, cached.history
    assert a["borrowed"].tolist() == b["borrowed"].tolist()
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=tolerance)
    assert len(a) == 4 and a["loss"].std() > 0
    np.testing.assert_allclose(
        [e.score for e in plain.evaluations], [e.score for e in cached.evaluations], rtol=tolerance
    )


def test_only_the_tail_moves():
    piece, dim = parts("tail")
    front = {k: v.clone() for k, v in piece.front.state_dict().items()}
    tail = {k: v.clone() for k, v in piece.body.state_dict().items()}
    trainer(piece.body, dim).fit(*kept(piece))
    assert same_state(front, piece.front.state_dict())
    moved = [k for k, v in piece.body.state_dict().items() if not torch.equal(v, tail[k])]
    assert any(k.startswith("layer4.0.conv1") for k in moved)


@pytest.mark.parametrize("method", ["cdan+transnorm", "adda", "pada"])
def test_other_methods_on_kept_activations(method):
    piece, dim = parts("tail", "test_efficientnet")
    source, target = image_domains(views=2, n_target=3, ten_crop=True)
    domains = FrozenSource(source, piece.front), FrozenTarget(target, piece.front)
    result = trainer(piece.body, dim, method=method).fit(*domains)
    assert np.isfinite(result.history["loss"]).all()


def test_resume_on_kept_activations(tmp_path):
    run = Execution(
        n_threads=1, log_every=1, predict_batch=5, checkpoint=tmp_path / "state", checkpoint_every=1
    )

    class Stop(Callback):
        def on_step(self, trainer, step):
            if step.number == 2:
                raise KeyboardInterrupt

    def run_of(callbacks=(), **options):
        piece, dim = parts("tail")
        return trainer(piece.body, dim, callbacks=callbacks, **options), kept(piece)

    made, domains = run_of()
    whole = made.fit(*domains)
    made, domains = run_of([Stop()], run=run)
    with pytest.raises(KeyboardInterrupt):
        made.fit(*domains)
    made, domains = run_of(run=run)
    assert_same_run(whole, made.resume(tmp_path / "state").fit(*domains))


def test_a_frozen_part_keeps_its_weights_and_statistics():
    piece, dim = parts("tail")
    before = {k: v.clone() for k, v in piece.front.state_dict().items()}
    tail = {k: v.clone() for k, v in piece.body.state_dict().items() if k.endswith("running_mean")}
    trainer(nn.Sequential(Frozen(piece.front), piece.body), dim).fit(*image_domains(views=2))
    after = piece.front.state_dict()
    assert any(k.endswith("running_mean") for k in before)
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert not all(torch.equal(v, piece.body.state_dict()[k]) for k, v in tail.items())


def test_a_backbone_frozen_by_its_owner_keeps_its_statistics_and_drops_nothing():
    module, dim = toy_backbone("test_resnet")
    backbone = nn.Sequential(module.requires_grad_(False), nn.Linear(dim, dim), nn.Dropout(0.5))
    before = {k: v.clone() for k, v in module.state_dict().items()}
    modes = []

    class Modes(Callback):
        def on_step(self, trainer, step):
            modes.append([part.training for part in backbone])

    trainer(backbone, dim, callbacks=[Modes()]).fit(*image_domains(views=2))
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert modes and all(mode == [False, True, True] for mode in modes)
