"""float16 with a scaled loss: the scale is part of the run's state."""

from __future__ import annotations

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import MixedPrecision

from ba3us.training import Callback, Execution, checkpoints, distributed
from ba3us.training.distributed import ProcessGroup
from toys import assert_same_run, blobs, trainer


@pytest.fixture
def half(monkeypatch):
    """Runs in float16 on the CPU, whose scale doubles with every second update."""

    def start(config):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        return Fabric(accelerator="cpu", plugins=MixedPrecision("16-mixed", "cpu", scaler)), ProcessGroup()

    monkeypatch.setattr(distributed, "start", start)


class Stop(Callback):
    def on_step(self, trainer, step):
        if step.number == 5:
            raise KeyboardInterrupt


def test_a_resumed_run_goes_on_with_its_scale(half, tmp_path):
    source, target, _ = blobs()
    config = Execution(n_threads=1, log_every=1, checkpoint=tmp_path / "c.pt", checkpoint_every=3)
    whole = trainer().fit(source, target)
    with pytest.raises(KeyboardInterrupt):
        trainer(run=config, callbacks=(Stop(),)).fit(source, target)
    state = checkpoints.load(tmp_path / "c.pt")
    assert state["position"] == [0, 4] and state["precision"]["scale"] == 16.0
    resumed = trainer(run=config).resume(tmp_path / "c.pt").fit(source, target)
    assert_same_run(resumed, whole)
    assert checkpoints.load(tmp_path / "c.pt")["precision"]["scale"] == 64.0


def test_full_precision_has_no_scale(tmp_path):
    trainer(run=Execution(n_threads=1, checkpoint=tmp_path / "c.pt")).fit(*blobs()[:2])
    assert checkpoints.load(tmp_path / "c.pt")["precision"] == {}
