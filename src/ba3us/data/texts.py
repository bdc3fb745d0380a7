"""Tables of texts: CSV files as they were written, with nothing taken for a number or a gap."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ba3us.errors import UserError


def read_texts(path: Path) -> pd.DataFrame:
    """Every cell as text; bytes that are no text, as names of files may have, come through unchanged."""
    try:
        return pd.read_csv(path, dtype=object, keep_default_na=False, encoding_errors="surrogateescape")
    except (OSError, ValueError) as error:
        raise UserError(f"The table {path} can't be read ({str(error).splitlines()[0]}): mend it.") from error
