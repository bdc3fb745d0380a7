"""What is known of every method, as data: read in milliseconds, without importing one (or torch)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "methods" / "catalogue.json"  # made by registry.write_catalogue


def read() -> list[dict[str, Any]]:
    """All systems by name, each as :meth:`ba3us.methods.registry.Entry.described` has it."""
    found: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found
