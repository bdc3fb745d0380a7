"""The sentence a user meets."""

import pytest

from ba3us.errors import UserError, did_you_mean, optional_import, require


def test_user_error_is_a_value_error():
    with pytest.raises(ValueError, match=r"^Bad thing\.$") as caught:
        require(False, "Bad thing.")
    assert type(caught.value) is UserError
    require(True, "never seen")


def test_a_near_word_is_suggested_and_otherwise_all_are_listed():
    assert did_you_mean("ba3s", ["dann", "ba3us"]) == "did you mean 'ba3us'?"
    assert did_you_mean("qqqq", ["dann", "ba3us"]) == "choose one of: ba3us, dann."


def test_a_missing_package_names_its_extra():
    assert optional_import("json", "vision").dumps([1]) == "[1]"
    with pytest.raises(UserError, match=r"package no_such_package: pip install 'ba3us\[vision\]'"):
        optional_import("no_such_package.inner", "vision")
