"""Hyper-parameters as people type them."""

from __future__ import annotations

import pytest

from ba3us import methods
from ba3us.errors import UserError
from ba3us.methods.options import parse_options


def test_values():
    typed = ["a=1", "b=1e-3", "c=0.5", "d=true", "e=null", "f=paper", "g = x=y", "h=-2", "i=1E5"]
    assert parse_options(typed) == {
        "a": 1, "b": 0.001, "c": 0.5, "d": True, "e": None, "f": "paper", "g": "x=y", "h": -2, "i": 1e5,
    }  # fmt: skip
    assert parse_options([]) == {}


@pytest.mark.parametrize("typed", ["beta", "=1", "", "beta:1"])
def test_what_is_no_pair_is_a_sentence(typed):
    with pytest.raises(UserError, match="is not of the form name=value"):
        parse_options([typed])


def test_twice_is_a_sentence():
    with pytest.raises(UserError, match="'a' is given twice"):
        parse_options(["a=1", "a=2"])


@pytest.mark.parametrize("typed", [
    "beta=[1]", "beta=[1", "beta={x: 1}", "beta=much", "steps=1.5", "weight_source=1", "beta=2020-13-45",
    "beta=2020-01-01", "beta=10:30", "steps=" + 400 * "9", "steps=" + 5000 * "9", "beta=nan", "beta=inf",
    "form=2020-01-01", "gradual_weights=[1, 2]", "beta=",
])  # fmt: skip
def test_ill_typed_values_are_sentences_of_the_method(typed):
    with pytest.raises(UserError, match=r"^Option '\w+' is .*: it must be"):
        methods.get("ba3us").options(**parse_options([typed]))
