"""A table as Markdown, for the benchmarks' pages."""

from __future__ import annotations

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """Columns as they stand, the index left out."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
