"""The list of mutants keeps up with the code it changes."""

import pytest

from mutants import MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_changes_is_there_once(mutant):
    for file, text, other in mutant.changes:
        content = (ROOT / "src" / "ba3us" / file).read_text(encoding="utf-8")
        assert content.count(text) == 1 and text != other, f"{text!r} in {file}"
