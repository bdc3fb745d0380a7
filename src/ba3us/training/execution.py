"""How a run is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ba3us.errors import require
from ba3us.training.collapse import ON_COLLAPSE
from ba3us.training.diverging import ON_NAN


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out: nothing here changes what a method is.

    Parameters
    ----------
    seed : int
        Decides initial weights, batches and dropout.
    threads : int, optional
        CPU threads; part of the configuration because sums depend on it in the last bit. Default: torch's.
    evaluate_every : int, optional
        Predict the target this often, besides at every refresh.
    log_every : int
        Updates between two rows of the history.
    predict_batch : int
        Rows per batch when the whole target is predicted.
    accelerator : str, optional
        "cpu", "cuda" or "auto".
    devices : int or "auto", optional
        Processes on each node, one per device. The recipe's batch is the joint batch of all of them. Default:
        as many as :func:`ba3us.training.devices.launched` has started, or one.
    nodes : int, optional
        Machines; each runs the same command.
    precision : str
        Passed to Lightning Fabric.
    checkpoint : Path, optional
        Where to save the state of the run at every evaluation (and every `checkpoint_every` updates).
    identity : str
        A digest of all that the result depends on; a checkpoint of another one is not resumed.
    on_nan : str
        When a loss is no longer a number: ``stop``, or ``retry`` from the last evaluation (or the start) at
        half the learning rate, at most five times.
    on_collapse : str
        When predictions have fallen onto few classes: ``continue``, or ``stop``, with what was selected so far.
    """

    seed: int = 0
    threads: int | None = None
    evaluate_every: int | None = None
    log_every: int = 10
    predict_batch: int = 1024
    accelerator: str | None = None
    devices: int | str | None = None
    nodes: int | None = None
    precision: Any = "32-true"
    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    identity: str = ""
    on_nan: str = "stop"
    on_collapse: str = "continue"

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"The seed is {self.seed}: it must be 0 or more.")
        require(self.on_nan in ON_NAN, f"on_nan is {self.on_nan!r}: choose one of {', '.join(ON_NAN)}.")
        require(
            self.on_collapse in ON_COLLAPSE,
            f"on_collapse is {self.on_collapse!r}: choose one of {', '.join(ON_COLLAPSE)}.",
        )
        for name in ("threads", "evaluate_every", "log_every", "predict_batch", "checkpoint_every"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is {value}: it must be at least 1.")
