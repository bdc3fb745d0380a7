"""What TensorBoard shows of a training: losses, ramps and label-free scores over the updates."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ba3us.errors import UserError, optional_import
from ba3us.training.hooks import Hook

if TYPE_CHECKING:
    from lightning_fabric.loggers import TensorBoardLogger

    from ba3us.training.loop import Trainer
    from ba3us.training.result import Evaluation


class TensorBoard(Hook):
    """Writes through Fabric's logger; each training it looks on at has a folder of its own below `folder`."""

    def __init__(self, folder: str | Path) -> None:
        optional_import("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._logger: TensorBoardLogger | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The folder {folder} can't be made ({error.strerror}): choose another with --tensorboard."
            ) from error

    def on_start(self, trainer: Trainer) -> None:
        """Begin a folder, named after the method."""
        from lightning_fabric.loggers import TensorBoardLogger

        name = type(trainer.method).__name__.lower()
        free = next(n for n in itertools.count(1) if not (self.folder / f"{name}-{n}").exists())
        self._logger = TensorBoardLogger(self.folder, name=None, version=f"{name}-{free}")

    def on_row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """The figures of an update."""
        figures = {key: value for key, value in row.items() if isinstance(value, int | float) and key != "step"}
        self._log(trainer, row["phase"], row["step"], "update", figures)

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """The target's label-free scores."""
        self._log(trainer, evaluation.phase, evaluation.step, "target", evaluation.scores)

    def on_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._logger is not None:
            self._logger.finalize("success")

    def _log(self, trainer: Trainer, phase: str, step: int, group: str, figures: dict[str, Any]) -> None:
        assert self._logger is not None
        named = {f"{group}/{name}": value for name, value in figures.items()}
        self._logger.log_metrics(named, trainer.recipe.before(phase) + step)
