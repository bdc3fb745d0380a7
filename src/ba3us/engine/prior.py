"""A last step that any system can take when it is asked to: the prior of its classifier is put right.

A classifier that learned the source expects the source's shares of classes. EM on its calibrated probabilities
estimates those of the target (:mod:`ba3us.selection.shares`), and the classifier's biases are moved by the
logarithm of the ratio. It helps where only the shares differ, and makes mistakes firm where looks differ too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from ba3us.data import Target
from ba3us.engine.again import evenly
from ba3us.engine.run import Run
from ba3us.engine.training import presence_table
from ba3us.errors import require
from ba3us.methods.base import Method
from ba3us.selection import class_shares
from ba3us.selection.calibration import recalibrated
from ba3us.selection.presence import UNSURE
from ba3us.selection.shares import expected_shares, prior_shift, share_intervals
from ba3us.selection.verdict import ADAPTED

_MOST = 5_000  # rows of the target that shares are estimated from


def check_correctable(method: type[Method]) -> None:
    """Some systems do not predict with the network's classifier."""
    require(
        method.predict is Method.predict,
        f"--correct-prior is for systems that predict with the network's classifier, but {method.__name__} has "
        "its own way: leave it out.",
    )


def prior_corrected(run: Run, target: Target, labels: np.ndarray) -> Run:
    """The run with its classifier's prior put right by the target; `labels` are the source's.

    The verdict stays that of the model before; a note says how many rows changed. Confidence is worked out
    anew. A class on which the model before and this one disagree is ``unsure``, and its interval spans both;
    three more columns of ``presence`` have the share of each class by EM, and the ends of its interval.
    """
    why = "the run has no calibration" if run.calibration is None else ""
    if run.leaderboard is not None and run.verdict is not None and run.verdict.served == ADAPTED:
        why = "the model was taught the target's own rows, so its prior is not the source's (name a --method)"
    if why or run.calibration is None:
        run.notes = [*run.notes, f"The prior was not put right: {why}."]
        return run
    logits, warmth = run.logits(target), run.calibration.held_out
    prior = class_shares(labels, logits.shape[1])
    p = softmax(logits[evenly(len(logits), _MOST)] / warmth, axis=1)
    shares = expected_shares(p, prior)
    shift = warmth * prior_shift(shares, prior)
    moved = logits + shift
    bias = run.model.module.network.classifier.bias
    assert isinstance(bias, Tensor)
    with torch.no_grad():
        bias += torch.as_tensor(shift, dtype=bias.dtype)
    before, own = run.best.predictions, moved.argmax(axis=1)
    changed = float(np.mean(own != before))
    run.evaluations[run.selected] = dataclasses.replace(
        run.best, predictions=own, mean_probabilities=softmax(moved, axis=1).mean(axis=0).astype(np.float32)
    )
    run.calibration = recalibrated(run.calibration, moved)
    table, known = presence_table(run, [before]), run.presence
    table["low"], table["high"] = (
        pick(table[end], known[end]) for pick, end in ((np.minimum, "low"), (np.maximum, "high"))
    )
    table.loc[(table["present"] != known["present"]).to_numpy(), "present"] = UNSURE
    run.presence = table
    low, high = share_intervals(p, prior)
    for name, values in (("em_share", shares), ("em_low", low), ("em_high", high)):
        run.presence[name] = np.round(values, 6)
    run.notes = [
        *run.notes,
        f"The prior was put right after the verdict: {changed:.1%} of the rows changed class.",
    ]
    return run
