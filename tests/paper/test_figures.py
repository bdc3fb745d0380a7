"""Drawing: whole files, the numbers beside them, nothing half-written, readable in grey."""

from __future__ import annotations

import struct

import numpy as np
import pandas as pd
import pytest

from ba3us.errors import UserError
from ba3us.paper import figures
from ba3us.paper import figures as drawings
from ba3us.paper import figures as style

pytest.importorskip("matplotlib", reason="the extra `paper` is not installed")

SYSTEMS = ("source-only", "ba3us")


def by_classes() -> pd.DataFrame:
    rows = [(k, m, s, 90 - k + s) for k in (2, 4) for m in SYSTEMS for s in range(2)]
    return pd.DataFrame(rows, columns=["classes", "method", "seed", "accuracy"])


def curves() -> pd.DataFrame:
    rows = [
        (t, m, s, u, u + s, u == 20)
        for t in ("A->D", "D->A")
        for m in SYSTEMS
        for s in (0, 1)
        for u in (10, 20)
    ]
    return pd.DataFrame(rows, columns=["task", "method", "seed", "updates", "accuracy", "selected"])


def points() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        (m, d, c, *rng.normal(size=2))
        for m in SYSTEMS
        for d, n in (("source", 4), ("target", 2))
        for c in range(n)
    ]
    return pd.DataFrame(rows, columns=["method", "domain", "label", "x", "y"]).assign(task="A->D")


def check_files(paths, width: float, numbers: pd.DataFrame | None) -> None:
    pdf, png = paths[:2]
    assert pdf.read_bytes().startswith(b"%PDF-") and b"%%EOF" in pdf.read_bytes()[-16:]
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG") and content[-8:-4] == b"IEND"
    assert struct.unpack(">I", content[16:20])[0] == round(300 * width)
    if numbers is not None:
        pd.testing.assert_frame_equal(
            pd.read_csv(paths[2]), numbers, check_dtype=False, check_categorical=False
        )
    assert {p.name for p in png.parent.iterdir()} == {p.name for p in paths}


def test_accuracy_by_classes(tmp_path):
    check_files(figures.accuracy_by_classes(by_classes(), tmp_path / "a"), style.COLUMN, by_classes())


def test_convergence(tmp_path):
    check_files(figures.convergence(curves(), tmp_path / "c"), style.TEXT, curves())


@pytest.mark.parametrize("by", ["domain", "class"])
def test_embedding(tmp_path, by):
    check_files(figures.embedding(points(), tmp_path / "e", by=by), style.TEXT / 4 * 2, points())


def test_embedding_leaves_a_missing_panel_empty_and_takes_any_index(tmp_path):
    both = pd.concat([points(), points().iloc[:6].assign(task="D->A")])
    check_files(figures.embedding(both, tmp_path / "e"), style.TEXT / 2, both.reset_index(drop=True))


@pytest.mark.parametrize("number", [3, 90])
def test_class_weights(tmp_path, number):
    m = np.arange(number) / np.arange(number).sum()
    mask, names = np.arange(number) < 2, [f"c{i}" for i in range(number)]
    paths = figures.class_weights({"BAA": m, "BA3US": m[::-1]}, mask, names, tmp_path / "w")
    numbers = pd.DataFrame({"class": names, "true": mask, "BAA": m, "BA3US": m[::-1]})
    check_files(paths, style.COLUMN if number == 3 else style.TEXT, numbers)


def test_bars_of_many_classes_keep_the_sum_and_the_true_classes():
    table = pd.DataFrame({"class": [f"c{i}" for i in range(100)], "true": np.arange(100) >= 95, "m": 0.01})
    bars = figures._summed(table, ["m"])
    assert len(bars) == 41 and bars["m"].sum() == pytest.approx(1.0)
    assert bars[bars["true"]]["class"].tolist() == ["c95", "c96", "c97", "c98", "c99"]


def test_drawings_of_the_method(tmp_path):
    check_files(drawings.framework(tmp_path / "f" / "framework"), style.TEXT, None)
    check_files(drawings.uncertainty(tmp_path / "u" / "uncertainty"), style.TEXT, drawings.suppressed())


def test_suppression_flattens_the_uncertain_sample_and_leaves_the_certain_one():
    table = drawings.suppressed()
    uncertain, certain = (of for _, of in table.groupby("sample", sort=False))
    wrong = uncertain[~uncertain["true"]]
    assert np.ptp(wrong["after"]) < 0.02 < 0.3 < np.ptp(wrong["before"])
    assert uncertain["after"].iloc[0] >= uncertain["before"].iloc[0]
    assert (certain["after"] - certain["before"]).abs().max() < 0.015
    assert table[["before", "after"]].sum().tolist() == pytest.approx([2.0, 2.0])


def test_nothing_is_left_when_a_file_fails(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no room")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(RuntimeError, match="no room"):
        figures.convergence(curves(), tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_wrong_tables_are_one_sentence(tmp_path):
    with pytest.raises(UserError, match="must have task, method, seed, updates, accuracy, selected"):
        figures.convergence(curves().drop(columns="selected"), tmp_path / "c")
    with pytest.raises(UserError, match="0 rows"):
        figures.accuracy_by_classes(by_classes().iloc[:0], tmp_path / "a")
    with pytest.raises(UserError, match="true_mask has 1 values for 2 classes"):
        figures.class_weights({"BAA": [0.5, 0.5]}, [True], ["a", "b"], tmp_path / "w")
    with pytest.raises(UserError, match="BAA has 2 values for 3 classes"):
        figures.class_weights({"BAA": [0.5, 0.5]}, [True, False, False], ["a", "b", "c"], tmp_path / "w")


def test_the_style_of_others_is_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.accuracy_by_classes(by_classes(), tmp_path / "a")
    assert dict(matplotlib.rcParams) == before


def lightness(color: str) -> float:
    """CIE L* of a hex colour."""
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = linear @ [0.2126, 0.7152, 0.0722]
    return float(116 * np.cbrt(y) - 16)


def test_the_papers_systems_look_the_same_in_every_figure():
    whole = style.method_styles(["Source only", "E-DANN", "BAA", "BA3US", "BAA"])
    assert list(whole.values()) == list(style.LINE_STYLES[:4])
    assert style.method_styles(["BA3US", "Source only"]) == {
        name: whole[name] for name in ("BA3US", "Source only")
    }
    assert list(style.method_styles(["BA3US", *"abcde"]).values()) == [*style.LINE_STYLES, style.LINE_STYLES[0]]


def test_looks_differ_in_grey_line_and_marker():
    greys = sorted(lightness(look.color) for look in style.LINE_STYLES)
    assert np.diff(greys).min() > 6 and greys[-1] < 80
    for part in ("linestyle", "marker"):
        assert len({str(getattr(look, part)) for look in style.LINE_STYLES}) == len(style.LINE_STYLES)
    assert abs(lightness(style.SOURCE) - lightness(style.TARGET)) > 6
