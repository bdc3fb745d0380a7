"""Hyper-parameters as people type them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from ba3us.errors import UserError, require


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` pairs; values are read as numbers (also 1e-3), true, false, null or words."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        require(bool(equals and name), f"Setting {pair!r} is not of the form name=value: write beta=1, say.")
        require(name not in options, f"Setting {name!r} is given twice: leave one of them out.")
        options[name] = _value(name, text)
    return options


def _value(name: str, text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"Setting {name!r} is {text!r}: give a number, true, false, null or a word.") from error
    if isinstance(value, str):
        try:
            return float(value)  # YAML takes 1e-3 for a word
        except ValueError:
            return value
    return value
