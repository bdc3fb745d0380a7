"""Schedules over the training steps: ramps, learning-rate factors, numbers of borrowed samples."""

from __future__ import annotations

import math
from dataclasses import dataclass


def ramp(step: float, horizon: float, slope: float = 10.0) -> float:
    """The λ of DANN, from 0 towards 1: 2 / (1 + exp(-slope·step/horizon)) - 1."""
    return math.tanh(slope * step / horizon / 2.0)  # the same value, but no slope overflows


@dataclass(frozen=True)
class InverseDecay:
    """Learning-rate factor (1 + gamma·t)^(-power), from 1 downwards.

    `t` is the step, or step/period (at most 1) where a period is given.
    """

    gamma: float = 0.001
    power: float = 0.75
    period: int | None = None

    def __call__(self, step: int) -> float:
        """The factor at `step`."""
        t = step if self.period is None else min(1.0, step / self.period)
        return (1.0 + self.gamma * t) ** -self.power


def borrowed_by_interval(batch_size: int, rho: float, step: int, horizon: int, interval: int) -> int:
    """Number of borrowed samples as released: floor(ρB)·(1 - k/n) cut to an integer in the k-th of n intervals.

    A negative `rho` keeps floor(|ρ|B) throughout.
    """
    start = math.floor(batch_size * abs(rho) + 1e-9)
    if rho < 0:
        return start
    return int(max(0.0, start * (1 - (step // interval) / max(1, horizon // interval))))


def borrowed_by_progress(batch_size: int, rho: float, step: int, horizon: int) -> int:
    """Number of borrowed samples as in the paper's text: ρB decaying linearly to 0, rounded to an integer.

    A negative `rho` keeps |ρ|B throughout.
    """
    factor = 1.0 if rho < 0 else max(0.0, 1 - step / horizon)
    return round(batch_size * abs(rho) * factor)
