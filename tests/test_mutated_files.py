"""A damaged file of every kind: one sentence, or what it was; thousands: ``tests/torture/mutated_files.py``."""

from __future__ import annotations

import pytest

pytest.importorskip("PIL", reason="the extra vision is not installed")
pytest.importorskip("timm", reason="the extra vision is not installed")

from torture.mutated_files import torture
from torture.victims import VICTIMS


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_of_every_kind():
    counts, failures = torture(VICTIMS, len(VICTIMS), seed=0)
    assert failures == [] and sum(count.total() for count in counts.values()) == len(VICTIMS)
