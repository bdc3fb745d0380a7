"""Hyper-parameters and names: every bad one is a sentence that says what it must be."""

from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest

from ba3us import methods
from ba3us.errors import UserError
from ba3us.methods.base import Method, MethodInfo, Refresh, Step
from ba3us.methods.options import MethodOptions
from ba3us.methods.registry import register

BAD = [
    ("steps", 0, "at least 1"),
    ("steps", 2.5, "a whole number"),
    ("steps", "10", "a whole number"),
    ("steps", None, "a whole number"),
    ("steps", True, "a whole number"),
    ("steps", float("inf"), "a whole number"),
    ("steps", float("nan"), "a whole number"),
    ("warmup_steps", -1, "0 or more"),
    ("batch_size", 0, "from 1 to 100,000"),
    ("batch_size", 10**9, "from 1 to 100,000"),
    ("learning_rate", -0.1, "0 or more"),
    ("learning_rate", float("nan"), "a number between"),
    ("learning_rate", float("inf"), "a number between"),
    ("learning_rate", 1e300, "a number between"),
    pytest.param("steps", 10**400, "at most 18 digits", id="steps of 401 digits"),
    ("steps", [3], "a whole number"),
    ("learning_rate", "fast", "a number"),
    ("backbone_scale", -1, "0 or more"),
    ("weight_decay", -1e-9, "0 or more"),
    ("momentum", 1.0, r"in \[0, 1\)"),
    ("momentum", -0.1, r"in \[0, 1\)"),
    ("bottleneck", 0, "from 1 to"),
    ("refresh_every", 0, "at least 1"),
]
BAD_FAMILY = [
    ("alpha", -0.1, "0 or more"),
    ("beta", -1, "0 or more"),
    ("xi", -1, "0 or more"),
    ("rho", 1.5, r"in \[-1, 1\]"),
    ("rho", -1.01, r"in \[-1, 1\]"),
    ("weight_source", "yes", "true or false"),
    ("weight_alignment", 1, "true or false"),
    ("entropy_gradient", "none", "'reversed' or 'detached'"),
    ("form", "papper", "'released' or 'paper'"),
    ("form", None, "'released' or 'paper'"),
    ("discriminator_hidden", 0, "from 1 to"),
    ("discriminator_dropout", 1.0, r"in \[0, 1\)"),
]


@pytest.mark.parametrize("name", ["source-only", "dann", "ba3us"])
@pytest.mark.parametrize(("option", "value", "must_be"), BAD)
def test_bad_common_options(name, option, value, must_be):
    with pytest.raises(UserError, match=rf"^Option '{option}' is .*: it must be .*{must_be}"):
        methods.get(name).options(**{option: value})


@pytest.mark.parametrize("name", ["e-dann", "ba3us"])
@pytest.mark.parametrize(("option", "value", "must_be"), BAD_FAMILY)
def test_bad_options_of_the_family(name, option, value, must_be):
    with pytest.raises(UserError, match=rf"^Option '{option}' is .*: it must be .*{must_be}"):
        methods.get(name).options(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "must_be"),
    [
        ("beta", -1, "0 or more"),
        ("xi", -1, "0 or more"),
        ("discriminator_hidden", 0, "from 1 to"),
        ("discriminator_dropout", -0.5, r"in \[0, 1\)"),
        ("ramp_steps", 0, "at least 1"),
        ("ramp_slope", -1e4, "0 or more"),
        ("ramp_high", -1, "0 or more"),
    ],
)
def test_bad_options_of_dann(option, value, must_be):
    with pytest.raises(UserError, match=rf"^Option '{option}' is .*: it must be .*{must_be}"):
        methods.get("dann").options(**{option: value})


def test_the_sentence_shows_the_value():
    with pytest.raises(UserError, match=r"^Option 'batch_size' is -3: it must be from 1 to 100,000\.$"):
        methods.get("ba3us").options(batch_size=-3)


def test_unknown_options_suggest_the_nearest():
    with pytest.raises(UserError, match=r"^Unknown option 'learning_rte': did you mean 'learning_rate'"):
        methods.get("ba3us").options(learning_rte=0.1)
    with pytest.raises(UserError, match=r"^Unknown option 'qqq': choose one of: .*warmup_steps"):
        methods.get("source-only").options(qqq=1)
    with pytest.raises(UserError, match="Unknown option 'rho'"):  # not an option of this method
        methods.get("dann").options(rho=0.1)


def test_unknown_methods_suggest_the_nearest():
    with pytest.raises(UserError, match=r"^Unknown method 'b3us': did you mean 'ba3us'"):
        methods.get("b3us")
    with pytest.raises(UserError, match=r"^Unknown method 'qqq': choose one of: .*dann.*source-only"):
        methods.get("qqq")


def test_numbers_of_other_kinds_become_the_options_own():
    config = methods.get("ba3us").options(steps=np.int64(7), alpha=1, beta=np.float32(0.5), batch_size=4.0)
    assert (config.steps, config.alpha, config.beta, config.batch_size) == (7, 1.0, 0.5, 4)
    assert [type(getattr(config, n)) for n in ("steps", "alpha", "batch_size")] == [int, float, int]


def test_options_go_over_the_systems_own_settings():
    assert methods.get("e-dann").options(beta=2.0).beta == 2.0
    assert methods.get("e-dann").options().beta == 0.0


@pytest.mark.parametrize("entry", methods.entries(), ids=lambda e: e.name)
def test_every_number_has_a_range(entry):
    """So none is checked nowhere; a number of absurd size or none at all is a sentence."""
    for field in dataclasses.fields(entry.method.Options):
        if not isinstance(getattr(entry.options(), field.name), bool):
            for absurd in (float("nan"), float("inf"), -(10**400), -1e29, "x", [1], {}, datetime.date.today()):
                with pytest.raises(UserError, match=f"^Option '{field.name}' is .*: it must be .*"):
                    entry.options(**{field.name: absurd})


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        methods.get("ba3us").options().steps = 3


def test_every_entry_is_complete_and_in_order():
    entries = list(methods.entries())
    assert [e.name for e in entries] == sorted(e.name for e in entries)
    assert {"source-only", "dann", "e-dann", "aus", "baa", "ba3us"} <= {e.name for e in entries}
    for entry in entries:
        assert entry.info.title and entry.info.reference
        assert entry.info.setting in ("partial", "closed-set", "both")
        assert entry.info.losses in ("checked", "textbook", "variant", "reconstruction")
        assert isinstance(entry.options(), entry.method.Options)


def test_a_name_is_registered_once():
    info = MethodInfo("Twice", "nobody", "both", "variant")
    with pytest.raises(AssertionError, match="dann"):
        register("dann", info)(Method)


@pytest.mark.parametrize(
    ("steps", "given", "interval"), [(2000, None, 200), (7, None, 1), (2000, 33, 33), (15, None, 1)]
)
def test_the_refresh_interval_is_a_tenth_of_the_steps(steps, given, interval):
    assert MethodOptions(steps=steps, refresh_every=given).interval == interval


def test_when_a_refresh_is_due():
    plain = Refresh(every=4)
    assert [i for i in range(11) if plain.due(i, 10)] == [4, 8, 10]
    assert [i for i in range(11) if Refresh(every=5).due(i, 10)] == [5, 10]
    assert [i for i in range(11) if Refresh(every=4, offset=-1).due(i, 10)] == [3, 7, 10]
    assert [i for i in range(11) if Refresh(every=4, at_start=True).due(i, 10)] == [0, 4, 8, 10]


def test_progress_runs_from_zero_to_one():
    assert [Step(i, 4).progress for i in (0, 2, 4)] == [0, 0.5, 1]
    assert Step(0, 0).progress == 0
