"""The list of mutants keeps up with the code it changes."""

import pytest

from mutants import MUTANTS, ROOT, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_finds_its_function_and_changes_one_place(mutant):
    file, text = mutated(mutant)
    compile(text, file, "exec")
    for path in mutant.tests.split(" -k ")[0].split():
        assert (ROOT / path).exists(), path
