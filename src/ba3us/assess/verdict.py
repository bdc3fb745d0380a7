"""Did adapting help? Judged without target labels, beside the source-only model that the user would have had.

The witness is κ, the agreement of predictions among neighbours in vectors that nothing was adapted on
(:class:`ba3us.scores.Neighbours`). Entropy is none: the sure are not the right. The thresholds were chosen
on half of the variants of docs/trust.md, and tried on the other half once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ba3us.scores import Neighbours, effective_classes

HELPED, NO_EVIDENCE, HARMED = "likely helped", "no evidence", "likely harmed"
ADAPTED, SOURCE_ONLY = "adapted", "source-only"

MORE = 0.03  # evidence must rise by so much to speak for having adapted
FALL = 0.05  # … and κ may fall by so much: else classes are only scattered
TRUSTED = 0.6  # from this κ on, source-only follows the target's neighbourhoods so well that they may be heard
NEAR = 0.7  # from this κ on the shift is mild: systems that sharpen predictions may be tried
KEPT = 0.7  # share of source-only's effective classes that must remain: fewer is a collapse
_CLEAR, _CLEAR_NEAR = 0.02, 0.01  # gain of agreement with the reference that is called so; on a mild shift


@dataclass(frozen=True)
class Agreement:
    """What can be said of predictions without labels: κ, and how many classes they spread over."""

    kappa: float
    effective: float

    @classmethod
    def of(cls, predictions: np.ndarray, near: Neighbours) -> Agreement:
        """Of the predictions for the rows of `near`."""
        return cls(near.kappa(predictions), effective_classes(np.bincount(predictions)))

    @property
    def evidence(self) -> float:
        """How much neighbours confirm: κ times the entropy of the predicted shares.

        κ alone is largest where predictions have collapsed onto one or two classes, about which neighbours find
        it easy to agree; and scattered classes have entropy, but no agreement.
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
        return asdict(self) | {"figures": {name: round(float(v), 4) for name, v in self.figures.items()}}


def rejection_reason(candidate: Agreement, plain: Agreement) -> str:
    """Why a system is not to be believed beside source-only; nothing, if it may be."""
    if candidate.effective < KEPT * plain.effective:
        return (
            f"predictions fall onto {candidate.effective:.1f} classes, source-only's onto {plain.effective:.1f}"
        )
    return ""


def has_evidence(chosen: Agreement, plain: Agreement) -> bool:
    """Whether there is evidence for what was made of source-only: it rose, or source-only's κ was good.

    There is none for a collapse, however good source-only was.
    """
    if rejection_reason(chosen, plain):
        return False
    rose = chosen.evidence >= plain.evidence + MORE and chosen.kappa >= plain.kappa - FALL
    return rose or plain.kappa >= TRUSTED


def judge_auto(name: str, chosen: Agreement, plain: Agreement, changed: float, forced: bool = False) -> Verdict:
    """Of what the automatic choice made of source-only: the vote, or the member that took its place, smoothed.

    `changed` is the share of the target's rows that it gives another class than source-only.
    """
    figures = _figures(chosen, plain, changed) | {
        "evidence": chosen.evidence,
        "evidence_source_only": plain.evidence,
    }
    moved = f"{changed:.1%} of the target's rows have another class than source-only gives them."
    word = HELPED if has_evidence(chosen, plain) else NO_EVIDENCE
    if word == NO_EVIDENCE:
        why = (
            "Neighbouring target rows do not confirm more than with source-only, whose own classes hardly "
            f"follow the target's neighbourhoods (κ {plain.kappa:.2f}, below {TRUSTED}): nothing says what is "
            "right here."
        )
    elif changed < _CLEAR_NEAR / 2:
        word, why = NO_EVIDENCE, "Source-only is already where adapting would lead."
    elif plain.kappa >= TRUSTED:
        why = (
            f"Source-only's classes follow the target's own neighbourhoods (κ {plain.kappa:.2f}, at least "
            f"{TRUSTED} is asked; {name}: {chosen.kappa:.2f}), so rows that stood against their neighbours "
            "were put right."
        )
    else:
        why = (
            f"Neighbouring target rows confirm more than with source-only: evidence rose from "
            f"{plain.evidence:.2f} to {chosen.evidence:.2f} by the {name} (κ {plain.kappa:.2f} to "
            f"{chosen.kappa:.2f}, effective classes {plain.effective:.1f} to {chosen.effective:.1f})."
        )
    served = ADAPTED if word == HELPED or forced else SOURCE_ONLY
    return Verdict(word, served, [why, moved], figures)


def judge_run(
    predictions: np.ndarray, plain: np.ndarray, reference: np.ndarray | None, near: Neighbours
) -> Verdict:
    """Of a named system: is it nearer to what the automatic choice says, the `reference`, than source-only?

    Without a reference (nothing is known of what is right here) there is no evidence either way.
    """
    own, base = Agreement.of(predictions, near), Agreement.of(plain, near)
    figures = _figures(own, base, float(np.mean(predictions != plain)))
    seen = (
        f"κ of neighbours is {own.kappa:.2f}, source-only's {base.kappa:.2f}; predictions spread over "
        f"{own.effective:.1f} effective classes, source-only's over {base.effective:.1f}."
    )
    if reference is None:
        words = "Source-only hardly follows the target's neighbourhoods, and nothing better was found."
        return Verdict(NO_EVIDENCE, ADAPTED, [words, seen], figures)
    agreement, before = float(np.mean(predictions == reference)), float(np.mean(plain == reference))
    clear = _CLEAR_NEAR if base.kappa >= NEAR else _CLEAR
    gain = agreement - before
    word = HELPED if gain >= clear else HARMED if gain <= -clear else NO_EVIDENCE
    figures |= {"agreement": agreement, "agreement_source_only": before}
    words = f"It agrees with the automatic choice on {agreement:.1%} of the rows, source-only on {before:.1%}."
    return Verdict(word, ADAPTED, [words, seen], figures)


def _figures(own: Agreement, plain: Agreement, changed: float) -> dict[str, float]:
    return {
        "kappa": own.kappa,
        "kappa_source_only": plain.kappa,
        "effective_classes": own.effective,
        "effective_classes_source_only": plain.effective,
        "changed": changed,
    }
