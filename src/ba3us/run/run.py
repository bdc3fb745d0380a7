"""A run: the result of a training. It saves, loads and predicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ba3us.assess.calibration import Calibration
from ba3us.assess.verdict import Verdict
from ba3us.data import Target
from ba3us.data.images import Skipped
from ba3us.data.writing import new_folder
from ba3us.errors import UserError, require
from ba3us.run import storage as files
from ba3us.run.build import Model
from ba3us.run.predict import write_predictions
from ba3us.run.spec import Spec
from ba3us.training import Evaluation

_PROPORTIONS = ("proportion", "low", "high", "mean_probability", "em_proportion", "em_low", "em_high")
_FIGURES = ("kappa", "effective_classes")
_COLUMNS = ["step", "loss", "score"]  # of every history


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes
    ----------
    spec : Spec
        Its settings, with every hyper-parameter.
    model : Model
        The network that is used, with the selected weights.
    history : DataFrame
        Losses, ramps and label-free scores over the steps.
    evaluations : list of Evaluation
        Of the whole target while training.
    best_index : int
        Which of them has the weights of the model.
    presence : DataFrame
        One row per class: its proportion of the target, an interval, its mean probability, and its presence.
    about : dict
        Version, sizes, times, and where the settings come from.
    verdict : Verdict, optional
        Whether adapting likely helped; None without a comparison.
    leaderboard : DataFrame, optional
        The candidates behind an automatic choice.
    calibration : Calibration, optional
        What turns logits into confidence; only of runs with a verdict.
    """

    spec: Spec
    model: Model
    history: pd.DataFrame
    evaluations: list[Evaluation]
    best_index: int
    presence: pd.DataFrame
    about: dict[str, Any]
    verdict: Verdict | None = None
    leaderboard: pd.DataFrame | None = None
    calibration: Calibration | None = None
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[Skipped]] = field(default_factory=dict)

    @property
    def best(self) -> Evaluation:
        """The evaluation that was selected."""
        return self.evaluations[self.best_index]

    def with_note(self, note: str) -> Run:
        """The run with one more note."""
        return replace(self, notes=[*self.notes, note])

    def probabilities(self, domain: Target) -> np.ndarray:
        """Compute the class probabilities of a domain's samples, [n, C]."""
        return np.concatenate([logits.softmax(dim=1).numpy() for _, logits in self.model.outputs(domain)])

    def logits(self, domain: Target) -> np.ndarray:
        """Compute the logits of a domain's samples, [n, C]."""
        return np.concatenate([logits.numpy() for _, logits in self.model.outputs(domain)])

    def classes_where(self, call: str) -> list[Any]:
        """Classes that are called ``present``, ``absent`` or ``uncertain``."""
        return self.presence["class"][self.presence["present"] == call].tolist()

    def summary(self) -> dict[str, Any]:
        """JSON values for people and machines."""
        verdict = {} if self.verdict is None else {"verdict": self.verdict.to_dict()}
        board = {} if self.leaderboard is None else {"leaderboard": _records(self.leaderboard)}
        confidence = {} if self.calibration is None else {"confidence": self.calibration.summary()}
        return {
            "method": self.spec.method,
            **self.about,
            **verdict,
            **confidence,
            **board,
            "notes": self.notes,
            "skipped": sum(map(len, self.skipped.values())),
            "classes_present": self.classes_where("present"),
            "classes_uncertain": self.classes_where("uncertain"),
            "classes": self.presence.to_dict(orient="records"),
        }

    # --- on disk -----------------------------------------------------------------------------------------

    def save(self, path: str | Path, target: Target | None = None, paths: list[str] | None = None) -> None:
        """Write a run directory, whole or not at all; with predictions for `target`, if it is given."""
        files.check_free(Path(path), overwrite=True, resume=True)
        with new_folder(Path(path)) as folder:
            (folder / files.SPEC).write_text(self.spec.to_yaml(), encoding="utf-8")
            self.model.save(folder / files.MODEL)
            results = self.about | {
                "verdict": None if self.verdict is None else self.verdict.to_dict(),
                "calibration": None if self.calibration is None else self.calibration.to_dict(),
                "notes": self.notes,
            }
            files.write_results(folder / files.RESULTS, results, self.model.digest)
            self.history.to_csv(folder / files.HISTORY, index=False)
            files.write_evaluations(folder / files.EVALUATIONS, self.evaluations)
            files.write_frame(folder / files.PRESENCE, self.presence)
            if self.leaderboard is not None:
                files.write_frame(folder / files.LEADERBOARD, self.leaderboard)
            files.write_skipped(folder / files.SKIPPED, self.skipped)
            if target is not None:
                write_predictions(folder / files.PREDICTIONS, self.model, target, paths, self.calibration)

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read what :meth:`save` wrote."""
        path = Path(path)
        require(files.is_run(path), f"There is no run in {path}: give a folder that ba3us adapt wrote.")
        spec, model = Spec.read(path / files.SPEC), Model.load(path / files.MODEL)
        spec.method_options()  # an error if the method has no such hyper-parameter
        about = files.read_results(path / files.RESULTS, model.digest)
        verdict, calibration, notes = (about.pop(name) for name in ("verdict", "calibration", "notes"))
        evaluations, board = files.read_evaluations(path / files.EVALUATIONS), path / files.LEADERBOARD
        try:
            history = pd.read_csv(path / files.HISTORY)
            history.drop(columns=["phase", "selected"]).astype(float)[_COLUMNS]
            presence = files.read_frame(path / files.PRESENCE, _PROPORTIONS)
            leaderboard = files.read_frame(board, _FIGURES) if board.is_file() else None
            best_index = range(len(evaluations))[about["selected"]["evaluation"]]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"The run {path} is not whole ({type(error).__name__}): adapt again.") from error
        return cls(
            spec=spec,
            model=model,
            history=history,
            evaluations=evaluations,
            best_index=best_index,
            presence=presence,
            about=about,
            verdict=None if verdict is None else Verdict(**verdict),
            leaderboard=leaderboard,
            calibration=None if calibration is None else Calibration(**calibration),
            notes=notes,
            skipped=files.read_skipped(path / files.SKIPPED),
        )


def _records(table: pd.DataFrame) -> list[Any]:
    """Rows as JSON values, which have no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict(orient="records")
