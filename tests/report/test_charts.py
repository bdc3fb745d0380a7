"""Charts: SVG that the page's policy allows, with text as text and a tooltip per point."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from report_toys import NASTY

from ba3us.report.charts import (
    CostPoint,
    Curve,
    CurveAxes,
    Mark,
    MethodRow,
    bar,
    confusion_matrix,
    costs,
    curves,
    scatter,
    shorten,
    strips,
)

NAMES = [*NASTY, "$\\frac{$ and $x$", "\x1b[31m \x00", "\udcff"]
STEPS = np.arange(5)


def make_charts():
    """One of each kind, with names that quote, break lines, look like mathematics or are no XML."""
    lines = [Curve(name, STEPS, STEPS + n, f"k{n}") for n, name in enumerate(NAMES)]
    points = pd.DataFrame(
        {
            "x": range(14), "y": range(14), "domain": ["source", "target"] * 7,
            "colour": [*range(-1, 6)] * 2, "text": pd.Series(NAMES * 2, dtype=object),
        }
    )  # fmt: skip
    rows = [MethodRow(name, [Mark(n, name), Mark(n + 1, name)], n + 0.5) for n, name in enumerate(NAMES)]
    return {
        "curves": curves("a", "", lines, CurveAxes(2, 4, [(0, NAMES[0]), (2, NAMES[4])])),
        "scatter": scatter("b", "", points, NAMES[:6], (NAMES[4], NAMES[5])),
        "matrix": confusion_matrix("c", "", np.arange(49).reshape(7, 7), NAMES, NAMES),
        "strips": strips("d", "", rows, NAMES[4], reference=2, legend=NAMES[:2]),
        "costs": costs("e", "", [CostPoint(name, 1 + n, n, name) for n, name in enumerate(NAMES)], ("x", "y")),
    }


@pytest.fixture(scope="module")
def charts():
    return make_charts()


def elements(chart):
    """The drawing's elements; lone surrogates are no UTF-8."""
    text = re.sub("[\x00-\x08\x0e-\x1f\ud800-\udfff]", "?", chart.drawing)
    return list(ElementTree.fromstring(text).iter())


@pytest.mark.parametrize("kind", ["curves", "scatter", "matrix", "strips", "costs"])
def test_a_drawing_has_nothing_that_the_policy_blocks_and_no_foreign_markup(charts, kind):
    found = elements(charts[kind])
    assert {each.tag for each in found} <= {"svg", "g", "defs", "path", "use", "text", "title"}
    allowed = {
        "id", "class", "data-group", "d", "x", "y", "transform", "href", "viewBox", "fill", "fill-opacity",
        "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "aria-hidden", "focusable",
    }  # fmt: skip
    assert {name for each in found for name in each.attrib} <= allowed
    ids = [each.attrib["id"] for each in found if "id" in each.attrib]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[A-Za-z0-9_]+", each) for each in ids)
    assert {each.attrib["href"] for each in found if "href" in each.attrib} <= {f"#{each}" for each in ids}
    colours = {each.attrib[name] for each in found for name in ("fill", "stroke") if name in each.attrib}
    assert all(colour == "none" or colour.startswith("var(--") for colour in colours)  # both themes have them


def test_every_point_has_its_tooltip(charts):
    tips = {
        kind: [each.find("title").text for each in elements(chart) if each.find("title") is not None]
        for kind, chart in charts.items()
    }
    counts = {kind: len(found) for kind, found in tips.items()}
    assert counts == {"curves": 7 * 5, "scatter": 14, "matrix": 48, "strips": 14, "costs": 7}
    assert tips["curves"][0] == f"{NASTY[0]}\n0 after 0 steps"
    assert f"{NASTY[0]}\npredicted as {NASTY[2]}: 2 of 21 samples (9.5 %)" in tips["matrix"]


def test_a_legend_has_the_shapes_of_the_chart(charts):
    marks = [key.mark for key in charts["strips"].legend]
    assert len(set(marks)) == 2 and marks[1] == "M7.0 10.0L15.0 10.0L15.0 2.0L7.0 2.0L7.0 10.0Z"


def test_text_stays_text(charts):
    words = [each.text for each in elements(charts["matrix"]) if each.tag == "text"]
    assert "$\\frac{$ and …" in words and "true class" in words and "24" in words
    assert "\\x1b[31m \\x00" in words


def test_a_drawing_is_the_same_whatever_the_user_s_settings(charts, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "#ff0000")
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    before = dict(matplotlib.rcParams)
    assert {kind: chart.drawing for kind, chart in make_charts().items()} == {
        kind: chart.drawing for kind, chart in charts.items()
    }
    assert dict(matplotlib.rcParams) == before


def test_gaps_in_a_curve_are_left_out():
    lines = [Curve("a", [0, 1, 2], [0.5, math.nan, 0.7]), Curve("b", [0], [math.nan])]
    chart = curves("t", "s", lines, CurveAxes(0, 2))
    tips = [each.find("title").text for each in elements(chart) if each.find("title") is not None]
    assert tips == ["a\n0.5 after 0 steps", "a\n0.7 after 2 steps"] and "nan" not in chart.drawing


def test_numbers_that_are_alike_or_missing_can_be_drawn():
    for values in ([3, 3], [math.nan], [0, 0]):
        curves("t", "s", [Curve("a", STEPS[: len(values)], values)], CurveAxes(0, 0), percent=True)
    strips("t", "s", [MethodRow("none", [])], "x")
    assert "no finished run" in strips("t", "s", [MethodRow("a", [Mark(math.nan, "")])], "x").drawing
    costs("t", "s", [], ("x", "y"))


def test_long_names_are_cut_and_a_bar_says_what_it_shows():
    assert shorten("a" * 16) == "a" * 16 and shorten("a" * 17) == "a" * 15 + "…"
    drawn = bar(0.5, (0.2, math.inf), '"<b>": 50 %')
    assert "&#34;&lt;b&gt;&#34;: 50 %" in drawn and 'width="50.0%"' in drawn and "<line" not in drawn
    assert bar(2.0, (0.2, 0.7)).count("<line") == 3
