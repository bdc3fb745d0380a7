"""A trained network that can be taken apart into data and put together again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as packed
from torch import Tensor, nn

from ba3us import methods
from ba3us.data import Target
from ba3us.errors import UserError, require
from ba3us.methods.base import MethodConfig
from ba3us.nn import Network
from ba3us.training.loop import TrainingStep
from ba3us.training.predict import predict_batches


@dataclass(frozen=True)
class Blueprint:
    """All that decides the shape of network and method: a name, every hyper-parameter, two sizes.

    It is for samples that are feature vectors, of length `features`.
    """

    method: str
    options: dict[str, Any]
    features: int
    classes: int

    @classmethod
    def of(cls, method: str, config: MethodConfig, features: int, classes: int) -> Blueprint:
        """From a method's resolved hyper-parameters, so that later defaults don't change it."""
        return cls(method, dataclasses.asdict(config), features, classes)

    def build(self) -> TrainingStep:
        """Network and method, with initial weights."""
        entry = methods.get(self.method)
        config = entry.config(**self.options)
        network = Network(nn.Identity(), self.features, self.classes, entry.method.head(config))
        return TrainingStep(network, entry.create(network, config))


class Model:
    """A network on feature vectors with the method's own way to predict.

    It pickles, and goes to disk, as a blueprint and plain arrays.
    """

    FORMAT: ClassVar[str] = "ba3us model 1"
    Plan: ClassVar[type] = Blueprint

    def __init__(self, blueprint: Blueprint, module: TrainingStep) -> None:
        self.blueprint, self.module = blueprint, module

    @classmethod
    def rebuilt(cls, blueprint: Any, state: dict[str, Tensor]) -> Self:
        """From weights. Nothing is allocated before they are known to fit."""
        with torch.device("meta"):
            module = blueprint.build()
        module.load_state_dict(state, assign=True)
        return cls(blueprint, module)

    @property
    def feature_dim(self) -> int:
        """Length of an adapted feature vector."""
        return self.module.network.feature_dim

    def state(self) -> dict[str, Tensor]:
        """Copies of all weights and buffers."""
        return {k: v.detach().cpu().clone().contiguous() for k, v in self.module.state_dict().items()}

    def outputs(self, domain: Target, batch_size: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and logits, batch by batch."""
        dtype = next(self.module.parameters()).dtype
        for features, logits in predict_batches(
            self.module, lambda rows: domain.batch(rows, dtype), range(len(domain)), batch_size
        ):
            yield features.cpu(), logits.cpu()

    # --- on disk and in pickles --------------------------------------------------------------------------

    def save(self, path: Path, about: dict[str, Any]) -> None:
        """Write a safetensors file; `about` (JSON values) and the blueprint go into its header."""
        header = {"format": self.FORMAT, "blueprint": dataclasses.asdict(self.blueprint), "about": about}
        path.write_bytes(packed(self.state(), {"ba3us": json.dumps(header)}))

    @classmethod
    def load(cls, path: Path) -> tuple[Self, dict[str, Any]]:
        """Read what :meth:`save` wrote: the model and `about`. Loading can't run code."""
        require(path.is_file(), f"There is no model file {path}: give the folder of a run.")
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get("ba3us", "{}"))
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            require(
                isinstance(header, dict) and header.get("format") == cls.FORMAT,
                f"{path} is no model of ba3us, or of another version: give the folder of a run.",
            )
            model = cls.rebuilt(cls.Plan(**header["blueprint"]), state)
            about = header["about"]
        except UserError:
            raise
        except Exception as error:  # a header can be wrong in any way
            raise UserError(
                f"The model {path} can't be read ({type(error).__name__}): it is damaged; adapt again."
            ) from error
        return model, about

    def __getstate__(self) -> dict[str, Any]:
        return {"blueprint": self.blueprint, "state": {k: v.numpy() for k, v in self.state().items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a pickle's arrays may be read-only
        tensors = {k: torch.from_numpy(np.array(v)) for k, v in state["state"].items()}
        vars(self).update(vars(type(self).rebuilt(state["blueprint"], tensors)))
