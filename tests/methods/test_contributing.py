"""The guide's example of a method works as it stands: one file, and nothing else."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from ba3us import methods
from ba3us.errors import UserError
from ba3us.methods import registry
from ba3us.training import Execution
from toys import blobs, fit, options_for

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Import the guide's code block as a file; forget the method it registers afterwards."""
    code, *_ = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    (tmp_path / "guides_example.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(registry._ENTRIES)
    importlib.import_module("guides_example")
    yield set(registry._ENTRIES) - before
    for name in set(registry._ENTRIES) - before:
        del registry._ENTRIES[name]


def test_the_example_is_registered_and_trains(example):
    assert example == {"mean-matching"}
    source, target, _ = blobs()
    options = options_for("mean-matching", steps=30, pull=0.5)
    result = fit("mean-matching", source, target, options=options, config=Execution(n_threads=1, log_every=1))
    assert {"classification", "means"} <= set(result.history.columns)
    assert result.history["means"].iloc[-5:].mean() < result.history["means"].iloc[:5].mean()
    with pytest.raises(UserError, match="Option 'pull' is -1"):
        methods.get("mean-matching").options(pull=-1)
