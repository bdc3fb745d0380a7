"""The exception for bad input, and helpers that raise and word it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Bad input: one sentence that says what was wrong, with which value, and what to do.

    It is a ``ValueError`` in Python and exit code 2 on the command line.
    """


def require(condition: bool, message: str) -> None:
    """Raise :class:`UserError` with `message` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest choice, or all of them."""
    known = sorted(choices)
    if not known:
        return "there is none: leave it out."
    by_key = {_search_key(each): each for each in known}
    matches = difflib.get_close_matches(_search_key(word), by_key, n=1, cutoff=0.6)
    return f"did you mean {by_key[matches[0]]!r}?" if matches else f"choose one of: {', '.join(known)}."


def _search_key(word: str) -> str:
    return word.casefold().replace("³", "3")


def optional_import(module: str, extra: str) -> Any:
    """Import a package of one of ba3us's extras; :class:`UserError` if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"This needs the package {error.name}: pip install 'ba3us[{extra}]'.") from error
