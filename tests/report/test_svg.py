"""Scales and elements of drawings."""

from __future__ import annotations

import math

import pytest
from markupsafe import Markup

from ba3us.report.charts import Curve, CurveAxes, Scale, curves, element, scale, short


def test_an_element_escapes_what_it_is_given_but_not_other_elements():
    inner = element("b", "1 < 2")
    assert element("a", inner, "<", class_="x", data_group='"') == Markup(
        '<a class="x" data-group="&#34;"><b>1 &lt; 2</b>&lt;</a>'
    )


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 437, [0, 100, 200, 300, 400]),
        (-0.3, 2.1, [0, 0.5, 1, 1.5, 2]),
        (0.0531, 0.0584, [0.054, 0.056, 0.058]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round_and_inside(low, high, ticks):
    assert [value for value, _ in Scale(low, high, 0, 100).ticks()] == pytest.approx(ticks)


def test_values_go_to_their_places():
    plain, log = Scale(0, 10, 50, 150), Scale(1, 100, 0, 100, log=True)
    assert [plain(v) for v in (0, 5, 10)] == [50, 100, 150]
    assert [log(v) for v in (1, 10, 100)] == [0, 50, 100]
    assert [label for _, label in Scale(0, 1, 0, 1, share=True).ticks()][:2] == ["0 %", "20 %"]
    assert [value for value, _ in log.ticks()] == [1, 10, 100]


def test_a_scale_takes_in_all_finite_values_and_those_named():
    made = scale([2, math.nan, 4, math.inf], 0, 100, 0)
    assert made.low == 0 and made.high > 4 and math.isfinite(made.high)
    assert scale([], 0, 100)(1.0) == 50
    one = scale([3, 3], 0, 100)
    assert one.low < 3 < one.high


def test_long_words_are_cut():
    assert short("a" * 16) == "a" * 16 and short("a" * 17) == "a" * 15 + "…"


def test_gaps_in_a_curve_are_left_out():
    chart = curves(
        "t", "s", [Curve("a", [0, 1, 2], [0.5, math.nan, 0.7]), Curve("b", [0], [math.nan])], CurveAxes(0, 2)
    )
    assert [spot.text for spot in chart.spots] == ["a\n0.5 after 0 updates", "a\n0.7 after 2 updates"]
    assert "nan" not in chart.drawing
