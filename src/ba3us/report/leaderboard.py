"""The runs behind an automatic choice, as the table of the run directory has them."""

from __future__ import annotations

import numpy as np

from ba3us.report.parts import Part, Section, Table, Words
from ba3us.report.told import Told

_YES = {"yes", "true", "1"}


def leaderboard_section(told: Told) -> Section | None:
    """The runs behind an automatic choice, if there was one."""
    table = told.leaderboard
    if table is None or table.empty:
        return None
    chosen = [] if "chosen" not in table else np.flatnonzero(table["chosen"].str.lower().isin(_YES)).tolist()
    texts = table.map(_rounded)
    if "chosen" in table:
        texts["chosen"] = ["✓ chosen" if n in chosen else "" for n in range(len(table))]
    numeric = [n for n, c in enumerate(table) if n and all(map(_is_number, table[c]))]
    columns = [str(c).replace("_", " ") for c in texts]
    parts: list[Part] = [
        Words("Several runs were made and one was chosen, without labels of the target."),
        Table("The runs that were compared", columns, texts.to_numpy().tolist(), numeric, chosen),
    ]
    return Section("leaderboard", "Runs behind the choice", parts)


def _is_number(text: str) -> bool:
    try:
        return not np.isnan(float(text))
    except ValueError:
        return False


def _rounded(text: str) -> str:
    """Long fractions to four digits; everything else as it is."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text
