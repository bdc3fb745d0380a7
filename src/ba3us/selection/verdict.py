"""Did adapting help? Judged without target labels, beside the source-only model that the user would have had.

The witness is κ, the agreement of predictions among neighbours in vectors that nothing was adapted on
(:class:`ba3us.neighbours.Neighbours`). Entropy is none: the sure are not the right. The thresholds were chosen
on half of the variants of docs/trust.md, and tried on the other half once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ba3us.neighbours import Neighbours
from ba3us.selection.presence import effective

HELPED, NO_EVIDENCE, HARMED = "helped", "no evidence", "harmed"
ADAPTED, PLAIN = "adapted", "source-only"

RISE = 0.03  # κ must rise by so much to speak for another model
TRUSTED = 0.6  # from this κ on, source-only may be smoothed over its neighbours
NEAR = 0.7  # from this κ on the shift is mild: systems that sharpen predictions may be tried
KEPT = 0.7  # share of source-only's effective classes that must remain: fewer is a collapse
_SEVERAL = 1.2  # effective classes of source-only below which neighbours can't tell anything
_CLEAR, _CLEAR_NEAR = (
    0.02,
    0.01,
)  # gain of agreement with the reference that is called so; where the shift is mild


@dataclass(frozen=True)
class Standing:
    """What can be said of predictions without labels: κ, and how many classes they spread over."""

    kappa: float
    effective: float

    @classmethod
    def of(cls, predictions: np.ndarray, near: Neighbours) -> Standing:
        """Of the predictions for the rows of `near`."""
        return cls(near.kappa(predictions), effective(np.bincount(predictions) / len(predictions)))


@dataclass(frozen=True)
class Verdict:
    """One word, what is served, the reasons in sentences, and the figures behind them."""

    word: str
    served: str
    reasons: list[str]
    figures: dict[str, float] = field(default_factory=dict)

    @classmethod
    def unpacked(cls, said: Any) -> Verdict | None:
        """From what :meth:`packed` gave; None if it is of another form."""
        if not isinstance(said, dict) or said.keys() != {f.name for f in fields(cls)}:
            return None
        return cls(**said) if said["word"] in (HELPED, NO_EVIDENCE, HARMED) else None

    def packed(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"figures": {name: round(float(v), 4) for name, v in self.figures.items()}}


def objection(member: Standing, plain: Standing) -> str:
    """Why a model is not to be preferred to source-only; nothing, if it is."""
    if plain.effective < _SEVERAL:
        return "source-only gives nearly all rows one class, so that neighbours can't tell"
    if member.kappa < plain.kappa + RISE:
        return f"κ is not {RISE} above source-only's ({member.kappa:.2f}, {plain.kappa:.2f})"
    if member.effective < KEPT * plain.effective:
        return f"predictions fall onto {member.effective:.1f} classes, source-only's onto {plain.effective:.1f}"
    return ""


def of_choice(name: str, chosen: Standing, plain: Standing, changed: float, forced: bool = False) -> Verdict:
    """Of what the automatic choice made of source-only: the member that was chosen (perhaps itself), smoothed.

    `changed` is the share of the target's rows that it gives another class than source-only.
    """
    figures = _figures(chosen, plain, changed)
    moved = f"{changed:.1%} of the target's rows have another class than source-only gives them."
    if name != PLAIN:
        word = HELPED
        why = (
            "Neighbouring target rows share a class more often than with source-only: κ rose from "
            f"{plain.kappa:.2f} to {chosen.kappa:.2f} with {name}, over {chosen.effective:.1f} effective "
            f"classes (source-only: {plain.effective:.1f})."
        )
    elif plain.kappa >= TRUSTED:
        word = HELPED
        why = (
            f"Source-only's classes follow the target's own neighbourhoods (κ {plain.kappa:.2f}, at least "
            f"{TRUSTED} is asked), so rows that stood against their neighbours were put right."
        )
    else:
        word = NO_EVIDENCE
        why = (
            "No system made neighbouring target rows agree better, and source-only's own classes hardly "
            f"follow the target's neighbourhoods (κ {plain.kappa:.2f}, below {TRUSTED}): nothing says what is "
            "right here."
        )
    if word == HELPED and changed < _CLEAR_NEAR / 2:
        word, why = NO_EVIDENCE, "Source-only is already where adapting would lead."
    served = ADAPTED if word == HELPED or forced else PLAIN
    return Verdict(word, served, [why, moved], figures)


def of_run(
    predictions: np.ndarray, plain: np.ndarray, reference: np.ndarray | None, near: Neighbours
) -> Verdict:
    """Of a named system: is it nearer to what the automatic choice says, the `reference`, than source-only?

    Without a reference (nothing is known of what is right here) there is no evidence either way.
    """
    own, base = Standing.of(predictions, near), Standing.of(plain, near)
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


def _figures(own: Standing, plain: Standing, changed: float) -> dict[str, float]:
    return {
        "kappa": own.kappa,
        "kappa_source_only": plain.kappa,
        "effective_classes": own.effective,
        "effective_classes_source_only": plain.effective,
        "changed": changed,
    }
