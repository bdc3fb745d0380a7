"""What the paper prints, from the folder of references beside the project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def reference() -> Callable[[str], Path]:
    """A file of ../shared/paper, of the project's folder or of one above it."""

    def find(name: str) -> Path:
        for folder in Path(__file__).resolve().parents:
            if (folder / "shared" / "paper" / name).is_file():
                return folder / "shared" / "paper" / name
        pytest.skip(f"the paper's {name} (../shared/paper) is not here")

    return find
