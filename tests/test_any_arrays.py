"""Any arrays: what comes out is finite and of the source's classes, or there is one sentence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ba3us import PartialAdapter
from ba3us.data.files import encoded
from ba3us.errors import UserError

WIDTH = 3
FEW = settings(max_examples=25)
TINY = {"steps": 2, "n_threads": 1, "batch_size": 4}
SMALL = {"auto": {}, "source-only": {"bottleneck": 4}, "ba3us": {"bottleneck": 4, "discriminator_hidden": 4}}
SMALL |= {"jumbot": {"bottleneck": 4}, "safn": {"bottleneck": 4}, "san": {"bottleneck": 4}}

TYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.uint64, np.bool_])
SCALES = st.sampled_from([1e-45, 1e-30, 1e-10, 1.0, 1e10, 1e30, 3e38, 1e39])


@st.composite
def samples(draw, least=0):
    """Rows of any type, among them equal ones, constant columns, extreme values and what is no number."""
    count, kind = draw(st.integers(least, 8)), draw(TYPES)
    x = draw(hnp.arrays(kind, (count, WIDTH)))
    if np.dtype(kind).kind == "f" and draw(
        st.booleans()
    ):  # most arbitrary floats are refused: here are some that are not
        x = np.nan_to_num(x, posinf=1, neginf=-1)
        x = (np.clip(x, -1, 1) * draw(SCALES)).astype(np.float64 if kind == np.float64 else np.float32)
    if count and draw(st.booleans()):
        x[:] = x[0]
    elif count and draw(st.booleans()):
        x[:, 0] = x[0, 0]
    return x


LABELS = st.one_of(
    st.lists(st.integers(-3, 3), min_size=8, max_size=8),
    st.lists(st.sampled_from(["", "a", "A", " a", "é", "=1+1", "<b>", "\0", "\ud800"]), min_size=8, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.lists(st.floats(), min_size=8, max_size=8),
    st.lists(st.none() | st.integers(0, 1) | st.text(max_size=1) | st.binary(max_size=1), min_size=8),
    hnp.arrays(st.sampled_from([np.int8, np.uint64, np.float32, np.complex64, "U2", "S2", "M8[s]"]), 8),
)  # fmt: skip


def judged(method: str, x, y, xt) -> None:
    """Fit and predict; only a sentence may come in between."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = PartialAdapter(method, method_params=SMALL[method], **TINY).fit(x, y, xt)
            labels, p = model.predict(xt), model.predict_proba(xt)
        except UserError as error:
            if "\n" in str(error) or not str(error).endswith((".", "?")):
                raise AssertionError("not one sentence") from error
            return
    assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1, atol=1e-4)
    assert p.shape == (len(xt), len(model.classes_)) and set(labels.tolist()) <= set(model.classes_.tolist())
    assert set(model.classes_.tolist()) == set(np.asarray(y).tolist())
    shares = model.class_presence_["proportion"]
    assert np.isfinite(shares).all() and abs(shares.sum() - 1) < 1e-3
    if method == "auto":
        assert model.verdict_.outcome in ("likely helped", "no evidence", "likely harmed")


@FEW
@given(x=samples(least=2), xt=samples(), method=st.sampled_from(sorted(SMALL)))
def test_any_rows(x, xt, method):
    judged(method, x, np.arange(len(x)) % 2, xt)


@FEW
@given(y=LABELS, method=st.sampled_from(["auto", "source-only"]))
def test_any_labels(y, method):
    judged(method, np.random.default_rng(0).normal(size=(len(y), WIDTH)), y, np.ones((2, WIDTH)))


@FEW
@given(x=hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)))
def test_any_shape(x):
    judged("source-only", x, np.arange(np.shape(x)[0] if x.ndim else 1) % 2, x)


@settings(max_examples=100)
@given(y=LABELS)
def test_classes_are_never_made_one(y):
    """As many classes as there are different labels; else a sentence."""
    try:
        classes, numbers = encoded(y, len(y))
    except UserError:
        return
    assert [classes[n] == label for n, label in zip(numbers, y)] == [True] * len(y)
    assert len(classes) == len({(type(label) is bool, label) for label in np.asarray(y, dtype=object).tolist()})


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("method", sorted(SMALL))
def test_the_smallest_targets_and_sources(method, rows):
    x = np.random.default_rng(0).normal(size=(4, WIDTH))
    judged(method, x, [0, 1, 0, 1], x[:rows])
    judged(method, x[:rows], [0, 1, 0, 1][:rows], x)


@pytest.mark.parametrize("method", ["auto"])
def test_the_scale_of_the_features_does_not_matter(method):
    """From the smallest that float32 can tell apart to the largest that it holds."""
    g = np.random.default_rng(0)
    y = np.arange(40) % 4
    x = np.clip(np.eye(4, 6)[y] + 0.1 * g.standard_normal((40, 6)), -1, 1)
    for scale in (1e-36, 1e-30, 1.0, 1e30, 3e38):
        model = PartialAdapter(method, steps=60, n_threads=1, method_params=SMALL[method]).fit(
            scale * x, y, scale * x[:20]
        )
        assert (model.predict(scale * x) == y).mean() >= 0.85, scale


def test_ten_thousand_classes():
    g = np.random.default_rng(0)
    x, y = g.normal(size=(10_000, 4)), np.arange(10_000)
    model = PartialAdapter(**TINY).fit(x, y, x[:5])
    assert model.predict_proba(x[:5]).shape == (5, 10_000) and len(model.class_presence_) == 10_000
