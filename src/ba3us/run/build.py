"""From a blueprint to network and method, and a trained model as data: pickles and safetensors files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from ba3us import methods
from ba3us.data import Target
from ba3us.data.machine import total_memory
from ba3us.errors import UserError, require
from ba3us.methods.options import MethodOptions
from ba3us.nn import Network
from ba3us.nn.backbones import Backbone
from ba3us.run import opening
from ba3us.run.samples import Samples
from ba3us.training import TrainingStep
from ba3us.training.evaluation import predict_batches

FORMAT = "ba3us model 3"
_FRONT = "front."  # prefix of the frozen front's weights


@dataclass(frozen=True)
class Blueprint:
    """Everything that a model is built from: the method with all its options, the classes, the samples."""

    method: str
    options: dict[str, Any]
    classes: list[Any]
    samples: Samples

    @classmethod
    def of(cls, method: str, config: MethodOptions, classes: list[Any], samples: Samples) -> Blueprint:
        """Create one with every option, so that later defaults don't change it."""
        return cls(method, dataclasses.asdict(config), classes, samples)

    def build(self, backbone: Backbone | None = None) -> Model:
        """Build a model with initial weights, those of `backbone` if given."""
        entry = methods.get(self.method)
        config = entry.options(**self.options)
        needs_pixels = "pixels" in entry.info.needs
        require(
            not needs_pixels or self.samples.has_pixels,
            f"The method {self.method!r} needs pixels, but there are feature vectors: choose another method.",
        )
        front, body, dim, classifier = self.samples.encoder(backbone, joined=needs_pixels)
        network = Network(body, dim, len(self.classes), entry.method.head(config), classifier)
        return Model(self, TrainingStep(network, entry.create(network, config)), front)

    def check_memory(self) -> None:
        """Refuse a training that can't fit into memory, such as one with a huge discriminator.

        Nothing is allocated for it. Kinds of samples that can't be built on ``meta`` are not checked.
        """
        available = total_memory()
        if available is None or not self.samples.builds_on_meta:
            return
        with torch.device("meta"):
            module = self.build().module
        # every weight, its gradient, its momentum, and the best weights so far
        size = 4 * sum(p.numel() * p.element_size() for p in module.parameters())
        require(
            size <= available,
            f"The method {self.method!r} would need {size / 1e9:.1f} GB of memory for {len(self.classes)} "
            f"classes, but there are {available / 1e9:.1f} GB: choose another method, or a smaller bottleneck "
            "or discriminator_hidden.",
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "method": self.method,
            "options": self.options,
            "classes": self.classes,
            "kind": self.samples.kind,
            "samples": dataclasses.asdict(self.samples),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Blueprint:
        """Create one from what :meth:`to_dict` returned."""
        assert isinstance(content["classes"], list)
        samples = opening.KINDS[content["kind"]](**content["samples"])
        return cls(content["method"], content["options"], content["classes"], samples)


class Model:
    """Network and method as one module, behind the frozen front of a backbone.

    It is pickled, and saved, as a blueprint and plain arrays.
    """

    def __init__(self, blueprint: Blueprint, module: TrainingStep, front: nn.Module | None = None) -> None:
        self.blueprint, self.module, self.front = blueprint, module, front
        for part in (module, front or module):  # so that threads can predict without switching the mode
            part.eval()

    @classmethod
    def rebuilt(cls, blueprint: Blueprint, state: dict[str, Tensor]) -> Model:
        """Build a model with given weights. If possible, nothing is allocated before they are known to fit."""
        with torch.device("meta" if blueprint.samples.builds_on_meta else "cpu"):
            model = blueprint.build()
        front = {k.removeprefix(_FRONT): v for k, v in state.items() if k.startswith(_FRONT)}
        model.module.load_state_dict({k: v for k, v in state.items() if not k.startswith(_FRONT)}, assign=True)
        (model.front or nn.Identity()).load_state_dict(front)
        return model

    @property
    def feature_dim(self) -> int:
        """Length of an adapted feature vector."""
        return self.module.network.feature_dim

    def state(self) -> dict[str, Tensor]:
        """Copies of all weights and buffers."""
        front = {} if self.front is None else self.front.state_dict()
        state = self.module.state_dict() | {f"{_FRONT}{k}": v for k, v in front.items()}
        return {k: v.detach().cpu().clone().contiguous() for k, v in state.items()}

    def outputs(self, domain: Target, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and logits, batch by batch."""
        dtype = next(self.module.parameters()).dtype
        size = batch_size or (1024 if len(domain.shape) == 1 else 32)
        for features, logits in predict_batches(
            self.module, lambda rows: domain.batch(rows, dtype), range(len(domain)), size
        ):
            yield features.cpu(), logits.cpu()

    def _header(self) -> str:
        return json.dumps({"format": FORMAT, "blueprint": self.blueprint.to_dict()})

    @property
    def digest(self) -> str:
        """32 digits that identify the blueprint and all weights; a model's file holds them too."""
        return _digest(self._header(), self.state())

    def save(self, path: Path) -> None:
        """Write a safetensors file with the blueprint and a digest of everything in its header."""
        state, header = self.state(), self._header()
        metadata = json.dumps({"header": header, "digest": _digest(header, state)})
        path.write_bytes(to_safetensors(state, {"ba3us": metadata}))

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read what :meth:`save` wrote. Loading can't run code; any changed bit is an error."""
        require(path.is_file(), f"There is no model file {path}: give the folder of a run.")
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads((file.metadata() or {}).get("ba3us", "{}"))
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = json.loads(about.get("header", "{}"))
            require(
                isinstance(header, dict) and header.get("format") == FORMAT,
                f"{path} is not a model of ba3us, or of another version: give the folder of a run.",
            )
            require(
                about.get("digest") == _digest(about["header"], state),
                f"The model {path} was changed after it was written: it is damaged; adapt again.",
            )
            return cls.rebuilt(Blueprint.from_dict(header["blueprint"]), state)
        except UserError:
            raise
        except Exception as error:  # a header can be wrong in any way
            raise UserError(
                f"The model {path} can't be read ({type(error).__name__}): it is damaged; adapt again."
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"blueprint": self.blueprint, "state": {k: v.numpy() for k, v in self.state().items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors = {k: torch.from_numpy(np.array(v)) for k, v in state["state"].items()}  # writable copies
        vars(self).update(vars(Model.rebuilt(state["blueprint"], tensors)))


def _digest(header: str, state: dict[str, Tensor]) -> str:
    hasher = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(state):
        hasher.update(repr((name, state[name].dtype, tuple(state[name].shape))).encode())
        hasher.update(state[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()
