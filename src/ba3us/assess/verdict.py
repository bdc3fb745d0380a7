"""The verdict: did adapting likely help? Judged without target labels, by comparison with source-only.

The criterion is κ, the agreement of predictions among neighbours, in vectors that were not adapted
(:class:`ba3us.scores.Neighbours`). Entropy is no criterion: confident predictions may be wrong. The thresholds
were chosen on half of the variants of docs/trust.md, and tested once on the other half.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ba3us.scores import Neighbours, effective_classes

HELPED, NO_EVIDENCE, HARMED = "likely helped", "no evidence", "likely harmed"
ADAPTED, SOURCE_ONLY = "adapted", "source-only"

NEAR = 0.7  # source-only's κ from which the shift is mild: methods that minimise entropy may be tried
_TRUSTED = 0.6  # source-only's κ from which smoothing over neighbours may be trusted
_MIN_RISE = 0.03  # of the evidence, for adapting to count as help
_MAX_FALL = 0.05  # of κ meanwhile: if it falls more, classes are only scattered
_MIN_CLASSES = 0.7  # proportion of source-only's effective classes: fewer is a collapse
_CLEAR, _CLEAR_NEAR = 0.02, 0.01  # clear gain of agreement with the reference; on a mild shift


@dataclass(frozen=True)
class Agreement:
    """Label-free figures of predictions: κ, and how many classes they spread over."""

    kappa: float
    effective: float

    @classmethod
    def of(cls, predictions: np.ndarray, neighbours: Neighbours) -> Agreement:
        """Compute them from the predictions for the samples of `neighbours`."""
        return cls(neighbours.kappa(predictions), effective_classes(np.bincount(predictions)))

    @property
    def evidence(self) -> float:
        """κ times the entropy of the predicted class proportions.

        κ alone is highest for predictions that have collapsed onto one or two classes. Entropy alone is highest
        for scattered classes.
        """
        return max(self.kappa, 0.0) * math.log(self.effective)


@dataclass(frozen=True, repr=False)
class Verdict:
    """The outcome in two words, the model that is used, the reasons as sentences, and their figures."""

    outcome: str
    model_used: str
    reasons: list[str]
    figures: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Verdict: {self.outcome}; model used: {self.model_used}; {self.reasons[0]}>"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        rounded = {name: round(float(value), 4) for name, value in self.figures.items()}
        return dataclasses.asdict(self) | {"figures": rounded}


def rejection_reason(candidate: Agreement, source_only: Agreement) -> str:
    """Say why a candidate is left out: it has collapsed. An empty text if it has not."""
    if candidate.effective >= _MIN_CLASSES * source_only.effective:
        return ""
    n_classes, n_base = f"{candidate.effective:.1f}", f"{source_only.effective:.1f}"
    return f"predictions fall onto {n_classes} classes, source-only's onto {n_base}"


def has_evidence(chosen: Agreement, source_only: Agreement) -> bool:
    """Whether there is evidence for the chosen predictions: it rose, or source-only's κ was good.

    There is none for a collapse, however good source-only was.
    """
    if rejection_reason(chosen, source_only):
        return False
    rose = chosen.evidence >= source_only.evidence + _MIN_RISE
    return (rose and chosen.kappa >= source_only.kappa - _MAX_FALL) or source_only.kappa >= _TRUSTED


def judge_auto(
    name: str, chosen: Agreement, source_only: Agreement, changed: float, forced: bool = False
) -> Verdict:
    """Judge the automatic choice.

    Parameters
    ----------
    name : str
        Of the chosen predictions in the leaderboard.
    chosen, source_only : Agreement
        Of these predictions before they are smoothed, and of source-only's.
    changed : float
        Proportion of the target samples with another class than source-only gives them.
    forced : bool
        Use the adapted model whatever the outcome.
    """
    outcome = HELPED if has_evidence(chosen, source_only) else NO_EVIDENCE
    if outcome == NO_EVIDENCE:
        reason = (
            "Neighbouring target samples do not agree more than with source-only, and source-only's own "
            f"classes hardly agree among neighbours (κ {source_only.kappa:.2f}, below {_TRUSTED}): nothing "
            "shows which classes are right."
        )
    elif changed < _CLEAR_NEAR / 2:
        outcome, reason = NO_EVIDENCE, "Adapting changes hardly any of source-only's predictions."
    elif source_only.kappa >= _TRUSTED:
        reason = (
            f"Source-only's classes agree among neighbouring target samples (κ {source_only.kappa:.2f}, at "
            f"least {_TRUSTED} needed; {name}: {chosen.kappa:.2f}), so samples that differed from their "
            "neighbours were likely corrected."
        )
    else:
        reason = (
            "Neighbouring target samples agree more than with source-only: evidence rose from "
            f"{source_only.evidence:.2f} to {chosen.evidence:.2f} with the candidate {name} (κ "
            f"{source_only.kappa:.2f} to {chosen.kappa:.2f}, effective classes {source_only.effective:.1f} to "
            f"{chosen.effective:.1f})."
        )
    reasons = [reason, f"{100 * changed:.1f} % of the target samples have another class than with source-only."]
    figures = _figures(chosen, source_only, changed)
    figures |= {"evidence": chosen.evidence, "evidence_source_only": source_only.evidence}
    return Verdict(outcome, ADAPTED if outcome == HELPED or forced else SOURCE_ONLY, reasons, figures)


def judge_run(
    predictions: np.ndarray, source_only: np.ndarray, reference: np.ndarray | None, neighbours: Neighbours
) -> Verdict:
    """Judge a named method: does it agree with the automatic choice, the `reference`, more than source-only?

    Without a reference (there was no evidence for any classes) there is no evidence either way.
    """
    own, base = Agreement.of(predictions, neighbours), Agreement.of(source_only, neighbours)
    figures = _figures(own, base, float(np.mean(predictions != source_only)))
    spread = (
        f"κ among neighbours is {own.kappa:.2f}, source-only's {base.kappa:.2f}; predictions spread over "
        f"{own.effective:.1f} effective classes, source-only's over {base.effective:.1f}."
    )
    if reference is None:
        reason = "Source-only's classes hardly agree among neighbours, and nothing better was found."
        return Verdict(NO_EVIDENCE, ADAPTED, [reason, spread], figures)
    agreement, before = (float(np.mean(each == reference)) for each in (predictions, source_only))
    clear = _CLEAR_NEAR if base.kappa >= NEAR else _CLEAR
    gain = agreement - before
    outcome = HELPED if gain >= clear else HARMED if gain <= -clear else NO_EVIDENCE
    figures |= {"agreement": agreement, "agreement_source_only": before}
    reason = (
        f"It agrees with the automatic choice on {100 * agreement:.1f} % of the samples, source-only on "
        f"{100 * before:.1f} %."
    )
    return Verdict(outcome, ADAPTED, [reason, spread], figures)


def _figures(own: Agreement, source_only: Agreement, changed: float) -> dict[str, float]:
    return {
        "kappa": own.kappa,
        "kappa_source_only": source_only.kappa,
        "effective_classes": own.effective,
        "effective_classes_source_only": source_only.effective,
        "changed": changed,
    }
