"""What follows from what was asked for: the shape of the network, the domains, where the state is kept."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ba3us import __version__
from ba3us.data import Source, Target
from ba3us.data.frozen_domain import FrozenSource, FrozenTarget
from ba3us.data.image_domain import ImageSource, ImageTarget
from ba3us.image_runs.opening import OpenedSource, OpenedTarget
from ba3us.image_runs.options import PRECISIONS, ImageOptions
from ba3us.methods.base import MethodConfig
from ba3us.nn.backbones import Backbone
from ba3us.nn.inference import for_inference
from ba3us.runs import FORMAT
from ba3us.training import ImageBlueprint, Result, RunConfig
from ba3us.training.team import Team


@dataclass(frozen=True)
class Plan:
    """A run on images, before it is carried out."""

    config: MethodConfig
    method: str
    seed: int
    threads: int | None
    chosen: ImageOptions

    def blueprint(self, backbone: Backbone, classes: int) -> ImageBlueprint:
        """The shape of network and method."""
        return ImageBlueprint(
            method=self.method,
            options=dataclasses.asdict(self.config),
            classes=classes,
            backbone=self.chosen.backbone,
            train=self.chosen.train,
            size=backbone.size,
            mean=backbone.mean,
            std=backbone.std,
        )

    def domains(
        self,
        blueprint: ImageBlueprint,
        found: OpenedSource,
        given: OpenedTarget,
        front: nn.Module | None,
        progress: bool,
    ) -> tuple[Source, Target]:
        """Images, or what the frozen `front` says of them."""
        c = self.chosen
        look = (blueprint.size, blueprint.mean, blueprint.std)
        how: dict[str, Any] = {
            "seed": self.seed,
            "views": None if front is None else c.views,
            "ten_crop": c.ten_crop,
            "device": c.place,
        }
        source = ImageSource(found.pixels, found.labels, *look, num_classes=blueprint.classes, **how)
        target = ImageTarget(given.pixels, *look, **how)
        if front is None:
            return source, target
        kept: dict[str, Any] = {"cache_gb": c.cache_gb, "activations": c.activations, "progress": progress}
        kept["batch_size"] = 8 if c.place == "cpu" else 64  # a CPU is fastest while a batch fits its caches
        quick = for_inference(front, blueprint.size)
        return FrozenSource(source, quick, **kept), FrozenTarget(target, quick, **kept)

    def run(self, state: Path) -> RunConfig:
        """How the loop is to run."""
        return RunConfig(
            seed=self.seed,
            threads=self.threads,
            accelerator=self.chosen.place,
            precision=PRECISIONS[self.chosen.precision],
            predict_batch=32 if self.chosen.place == "cpu" else 256,
            checkpoint=state,
        )

    def state_file(
        self, out: Path, blueprint: ImageBlueprint, found: OpenedSource, given: OpenedTarget
    ) -> Path:
        """Where this very run keeps its state: another method, option, seed or image is another file."""
        chosen = dataclasses.replace(self.chosen, cache_gb=0, workers=None)  # no matter for the results
        sketch = hashlib.blake2b(repr((blueprint, self.seed, self.threads, chosen)).encode(), digest_size=6)
        for keys in (found.pixels.keys, [found.labels.tobytes()], given.pixels.keys):
            sketch.update(b"".join(keys))
        return out.absolute().with_name(f".{out.name}.{sketch.hexdigest()}.state")

    def described(
        self,
        blueprint: ImageBlueprint,
        result: Result,
        source: str | Path,
        found: OpenedSource,
        target: str | Path,
        given: OpenedTarget,
    ) -> dict[str, Any]:
        """What goes into ``config.yaml``."""
        best = result.evaluations[result.selected]
        entropy = round(best.scores["entropy"], 6)
        weights = None if self.chosen.weights is None else str(self.chosen.weights)
        return {
            "format": FORMAT,
            "version": __version__,
            "data": "images",
            "method": self.method,
            "seed": self.seed,
            "threads": self.threads or torch.get_num_threads(),
            "processes": Team.current().size,
            "source": {"images": str(source), "rows": len(found.pixels), "classes": blueprint.classes},
            "target": {"images": str(target), "rows": len(given.pixels)},
            "skipped": {"source": len(found.skipped), "target": len(given.skipped)},
            "images": dataclasses.asdict(self.chosen) | {"weights": weights, "size": blueprint.size},
            "selected": {"phase": best.phase, "step": best.step, "mean_entropy": entropy},
            "options": blueprint.options,
        }
