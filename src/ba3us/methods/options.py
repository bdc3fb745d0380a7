"""Hyper-parameters as people type them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ba3us.errors import require

_WORDS = {"true": True, "false": False, "null": None}


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` pairs; values are read as numbers (also 1e-3), true, false, null or words."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        require(bool(equals and name), f"Setting {pair!r} is not of the form name=value: write beta=1, say.")
        require(name not in options, f"Setting {name!r} is given twice: leave one of them out.")
        options[name] = _value(text)
    return options


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
