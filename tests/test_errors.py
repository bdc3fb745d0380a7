"""The sentence a user meets."""

import pytest

from ba3us.errors import UserError, did_you_mean, require


def test_user_error_is_a_value_error():
    with pytest.raises(ValueError, match=r"^Bad thing\.$") as caught:
        require(False, "Bad thing.")
    assert type(caught.value) is UserError
    require(True, "never seen")


def test_a_near_word_is_suggested_and_otherwise_all_are_listed():
    assert did_you_mean("ba3s", ["dann", "ba3us"]) == "did you mean 'ba3us'?"
    assert did_you_mean("qqqq", ["dann", "ba3us"]) == "choose one of: ba3us, dann."
