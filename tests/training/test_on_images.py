"""The loop on images: methods on pixels, repeatable and resumable crops, reading ahead, precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us import methods
from ba3us.nn import Network, TransNorm2d
from ba3us.training import Callback, Execution, Trainer
from image_toys import image_domains, toy_backbone
from toys import assert_same_run, options_for

pytest.importorskip("timm", reason="needs the vision extra")


def trainer(name="ba3us", run=None, callbacks=(), **options):
    entry = methods.get(name)
    config = entry.options(**options_for(name, **{"steps": 4, "refresh_every": 2, "batch_size": 4} | options))
    backbone, dim = toy_backbone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(backbone, dim, 3, entry.method.head(config))
        method = entry.create(network, config)
    return Trainer(
        network, method, run or Execution(n_threads=1, log_every=1, predict_batch=5), callbacks=callbacks
    )


@pytest.mark.parametrize("name", ["ba3us", "sspda", "cdan+transnorm", "pada", "shot"])
def test_methods_train_on_images(name):
    options = {"permutations": 3} if name == "sspda" else {}
    made = trainer(name, **options)
    result = made.fit(*image_domains(n_target=3, ten_crop=True))  # a target smaller than a batch
    assert np.isfinite(result.history["loss"]).all() and len(result.history) >= 4
    assert result.evaluations[-1].predictions.shape == (3,)
    assert any(isinstance(m, TransNorm2d) for m in made.module.modules()) == (name == "cdan+transnorm")


def test_backbone_moves_slower_than_the_head():
    made = trainer("source-only", learning_rate=0.01)
    groups = []

    class Rates(Callback):
        def on_gradients(self, trainer, step):
            groups.append({g.prefix: g.lr_scale for g in trainer.recipe.groups})

    made.callbacks = [Rates()]
    before = {k: v.clone() for k, v in made.module.named_parameters()}
    made.fit(*image_domains())
    assert groups[0] == {"network.backbone": 0.1, "": 1.0}
    moved = {k for k, v in made.module.named_parameters() if not torch.equal(v, before[k])}
    assert "network.backbone.conv1.0.weight" in moved and "network.classifier.weight" in moved


def test_the_same_run_twice_and_another_seed():
    a = trainer().fit(*image_domains(seed=1))
    assert_same_run(a, trainer().fit(*image_domains(seed=1)))
    other = trainer().fit(*image_domains(seed=2))  # only the crops differ
    assert not a.history["loss"].equals(other.history["loss"])


def test_resume_sees_the_same_crops(tmp_path):
    run = Execution(
        n_threads=1, log_every=1, predict_batch=5, checkpoint=tmp_path / "state", checkpoint_every=1
    )

    class Stop(Callback):
        def on_step(self, trainer, step):
            if step.number == 2:
                raise KeyboardInterrupt

    whole = trainer(warmup_steps=2).fit(*image_domains())
    with pytest.raises(KeyboardInterrupt):
        trainer(run=run, callbacks=[Stop()], warmup_steps=2).fit(*image_domains())
    resumed = trainer(run=run, warmup_steps=2).resume(tmp_path / "state").fit(*image_domains())
    assert_same_run(whole, resumed)


def test_the_next_rows_are_announced(monkeypatch):
    source, target = image_domains()
    told, drawn = [], []
    monkeypatch.setattr(source.pixels, "expect", lambda rows: told.append(rows.tolist()))
    crop = source.crop
    monkeypatch.setattr(source, "crop", lambda rows, *a: drawn.append(rows.tolist()) or crop(rows, *a))
    trainer().fit(source, target)
    batches = [drawn[i] + drawn[i + 1] for i in range(0, len(drawn), 2)]  # source and borrowed
    assert told == batches[1:] and len(batches) == 4


def test_autocast_on_images():
    run = Execution(n_threads=1, log_every=1, precision="bf16-mixed", predict_batch=5)
    exact = trainer(steps=2).fit(*image_domains())
    result = trainer(run=run, steps=2).fit(*image_domains())
    assert not exact.history["loss"].equals(result.history["loss"])
    np.testing.assert_allclose(result.history["loss"][:1], exact.history["loss"][:1], rtol=0.05)
