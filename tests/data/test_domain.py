"""Domains: what they accept, what they refuse in a sentence, what they give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us.data import Source, Target
from ba3us.data.domains import Mapped, evenly_spaced_indices, random_indices
from ba3us.errors import UserError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.uint8, np.int16, np.int64, np.uint16, np.bool_]
)
def test_rows_of_any_number_type_come_as_floats(dtype):
    x = X.astype(dtype)
    domain = Target(x)
    for rows in (np.array([2, 0, 2]), slice(1, 3)):
        for wanted in (torch.float32, torch.float64):
            batch = domain.batch(rows, wanted)
            assert batch.dtype == wanted
            assert np.array_equal(batch.numpy(), x[rows].astype(float))
    assert len(domain) == 4 and domain.shape == (3,)


@pytest.mark.parametrize("x", [X.tolist(), torch.tensor(X), torch.tensor(X, requires_grad=True), X[::-1][::-1]])
def test_lists_and_tensors_are_arrays_too(x):
    assert np.array_equal(Target(x).batch(slice(0, 4)).numpy(), X)


def test_bfloat16_tensors_are_accepted():
    assert np.array_equal(Target(torch.tensor(X).bfloat16()).batch(slice(0, 4)).numpy(), X)


def test_foreign_byte_order_and_read_only_arrays_are_accepted():
    frozen = X.copy()
    frozen.flags.writeable = False
    for x in (X.astype(">f4"), frozen, X[:, ::-1]):
        assert np.array_equal(Target(x).batch(slice(0, 4)).numpy(), x.astype(np.float32))


def test_a_memory_mapped_array_stays_on_disk(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    domain = Target(np.load(path, mmap_mode="r"))
    assert isinstance(domain._x, Mapped)
    assert np.array_equal(domain.batch(np.array([3, 1])).numpy(), X[[3, 1]])
    assert np.array_equal(domain.batch(slice(1, 3)).numpy(), X[1:3])


def test_a_memory_mapped_array_of_foreign_byte_order(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X.astype(">f4"))
    domain = Target(np.load(path, mmap_mode="r"))
    for rows in (np.array([3, 1]), slice(1, 3)):
        assert np.array_equal(domain.batch(rows).numpy(), X[rows])


@pytest.mark.parametrize("rows", [np.array([0]), slice(0, 1), slice(None)])
def test_a_batch_is_a_copy(rows):
    x = X.copy()
    domain = Target(x, views=x[None])
    domain.batch(rows).fill_(99)
    domain.view_batch(0, rows).fill_(99)
    assert np.array_equal(x, X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_and_inf_name_the_first_such_row(value, dtype):
    x = X.astype(dtype)
    x[2, 1] = x[3, 0] = value
    with pytest.raises(UserError, match=r"^The target has NaN or infinite values \(first in row 2\): drop"):
        Target(x)
    with pytest.raises(UserError, match=r"The source .*row 2"):
        Source(x, [0, 1, 0, 1])


def test_opposite_infinities_do_not_cancel():
    x = X.copy()
    x[1, 0], x[2, 0] = np.inf, -np.inf
    with pytest.raises(UserError, match="row 1"):
        Target(x)


def test_bad_rows_are_found_beyond_the_first_chunk(monkeypatch):
    monkeypatch.setattr("ba3us.data.domains._CHUNK_VALUES", 6)  # two rows at a time
    x = X.copy()
    x[3, 2] = np.nan
    with pytest.raises(UserError, match="row 3"):
        Target(x)
    assert len(Target(X)) == 4


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (
            np.array([[1.0, 2.0], [0.0, -1e300]]),
            r"beyond what float32 holds \(first in row 1: -1e\+300\): scale",
        ),
        (np.ones((2, 3), dtype=np.longdouble), "type float(128|96): give an array of numbers, float64 at most"),
        (np.ones((2, 3), dtype="datetime64[s]"), r"type datetime64\[s\]"),
        ([[1.0], [1.0, 2.0]], "rows of different lengths"),
    ],
)
def test_what_float32_cannot_hold_is_one_sentence(x, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        Target(x)
    if isinstance(x, np.ndarray):
        np.save(tmp_path / "x.npy", x)
        with pytest.raises(UserError, match=sentence):
            Source(np.load(tmp_path / "x.npy", mmap_mode="r"), [0, 1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_largest_values_pass(dtype):
    most = min(np.finfo(dtype).max, np.finfo(np.float32).max)
    x = np.full((2, 3), most, dtype=dtype)
    assert torch.isfinite(Target(x).batch(slice(0, 2))).all()
    x[1, 2] = np.nan
    with pytest.raises(UserError, match=r"NaN or infinite values \(first in row 1\)"):
        Target(x)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros(3), r"target has shape \(3,\): give an array of samples"),
        (np.zeros((0, 3)), "target is empty: give at least one sample"),
        (np.array([["a"]]), "target holds values of type <U1: give an array of numbers"),
        (np.array([[1j]]), "type complex128"),
        (np.array([[None]]), "type object"),
    ],
)
def test_what_is_no_array_of_samples_is_a_sentence(x, sentence):
    with pytest.raises(UserError, match=sentence):
        Target(x)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([0, 1], r"4 rows but labels of shape \(2,\)"),
        (None, r"labels of shape \(\)"),
        ([[0], [1], [0], [1]], r"labels of shape \(4, 1\)"),
        ([0.0, 1.0, 0.0, 1.0], "must be integers 0 … C-1, not float64"),
        (["a", "b", "a", "b"], "not <U1"),
        ([0, -1, 2, 0], "run from -1 to 2"),
    ],
)
def test_bad_labels_are_a_sentence(y, sentence):
    with pytest.raises(UserError, match=sentence):
        Source(X, y)


def test_labels_beyond_the_number_of_classes_are_a_sentence():
    with pytest.raises(UserError, match=r"run from 0 to 3 for 3 classes: labels must lie in 0 … 2"):
        Source(X, [0, 1, 2, 3], num_classes=3)


def test_number_of_classes():
    assert Source(X, [0, 2, 1, 0]).num_classes == 3
    assert Source(X, [0, 0, 0, 0], num_classes=7).num_classes == 7
    assert Source(X, np.array([1, 0, 1, 0], dtype=np.uint8)).labels.dtype == torch.int64


def test_views_must_have_the_rows_of_the_target():
    domain = Target(X, views=[X + 1, X + 2])
    assert np.array_equal(domain.view_batch(1, slice(0, 2)).numpy(), X[:2] + 2)
    with pytest.raises(UserError, match="4 rows but a view has 3"):
        Target(X, views=[X, X[:3]])


def test_a_target_has_no_place_for_labels():
    with pytest.raises(TypeError):
        Target(X, [0, 1, 0, 1])
    with pytest.raises(TypeError):
        Target(X, labels=[0, 1, 0, 1])
    assert not hasattr(Target(X), "labels")


def test_samples_of_rows():
    assert evenly_spaced_indices(3, 5).tolist() == [0, 1, 2] == random_indices(3, 5).tolist()
    assert evenly_spaced_indices(9, 3).tolist() == [0, 4, 8]
    rows = random_indices(5000, 100)
    assert len(np.unique(rows)) == 100 and (np.diff(rows) > 0).all()
    assert (random_indices(5000, 100) == rows).all() and (random_indices(5000, 100, seed=1) != rows).any()
