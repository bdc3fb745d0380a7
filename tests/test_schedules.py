"""Ramps, learning-rate factors and borrowed counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ba3us.schedules import InverseDecay, borrowed_by_interval, borrowed_by_progress, ramp


@pytest.mark.parametrize("horizon", [10, 2000])
def test_ramp_unit_checks(horizon):
    assert ramp(0, horizon) == 0
    assert ramp(horizon / 2, horizon) == pytest.approx(0.98661, abs=5e-6)
    assert ramp(horizon, horizon) == pytest.approx(0.99991, abs=5e-6)


def test_ramp_is_the_printed_formula_and_no_slope_overflows():
    assert ramp(3, 10, slope=2.5) == pytest.approx(2 / (1 + math.exp(-0.75)) - 1, rel=1e-12)
    assert (ramp(1, 1, slope=-1e4), ramp(1, 1, slope=1e30)) == (-1, 1)


def test_ramp_slope():
    assert ramp(1, 1, slope=1) == pytest.approx(math.tanh(0.5))


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_ramp_rises_within_zero_and_one(step, horizon):
    assert 0 <= ramp(step, horizon) <= ramp(step + 1, horizon) <= 1


@pytest.mark.parametrize(("steps", "factor"), [(2000, 0.439), (5000, 0.261), (40000, 0.062)])
def test_inverse_decay_by_updates(steps, factor):
    """The released factors at the end, for the three datasets."""
    assert InverseDecay()(0) == 1
    assert InverseDecay()(steps) == pytest.approx(factor, abs=5e-4)


def test_inverse_decay_by_progress():
    """The printed factor (1 + 10 p)^(-3/4): 11^(-3/4) at the end, whatever the length, and no further."""
    for period in (10, 4000):
        decay = InverseDecay(gamma=10.0, period=period)
        assert decay(0) == 1
        assert decay(period // 2) == pytest.approx(6**-0.75)
        assert decay(period) == decay(2 * period) == pytest.approx(0.1656, abs=1e-4)


def test_borrowed_as_released():
    counts = [borrowed_by_interval(36, 0.25, i * 200, 2000, 200) for i in range(11)]
    assert counts == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert borrowed_by_interval(36, 0.25, 199, 2000, 200) == 9  # constant within an interval


def test_borrowed_by_progress_is_linear():
    counts = [borrowed_by_progress(40, 0.25, i, 10) for i in range(11)]
    assert counts == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("step", [0, 5, 10, 50])
def test_negative_rho_is_constant(step):
    assert borrowed_by_interval(36, -0.25, step, 10, 1) == 9
    assert borrowed_by_progress(36, -0.25, step, 10) == 9


@given(st.integers(1, 200), st.floats(0, 1), st.integers(0, 300), st.integers(1, 300), st.integers(1, 300))
def test_borrowed_counts_shrink_and_stay_in_range(batch, rho, step, horizon, interval):
    for count in (
        lambda i: borrowed_by_interval(batch, rho, i, horizon, interval),
        lambda i: borrowed_by_progress(batch, rho, i, horizon),
    ):
        assert batch >= count(step) >= count(step + 1) >= 0
        assert isinstance(count(step), int)
