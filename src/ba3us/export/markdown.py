"""Text from elsewhere as Markdown that shows it and does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ba3us.progress import visible

_ACTIVE = re.compile(r"(^[-+=]|[\\`*_\[\]<>#|~&@])")


def verbatim(text: object) -> str:
    """A name as a code span, in which nothing is markup; pipes are escaped for tables."""
    inside = visible(text).replace("|", "\\|")
    if not inside.strip():
        return "(no name)"
    fence = "`" * (1 + max(map(len, re.findall("`+", inside)), default=0))
    edge = " " if inside[0] in "` " or inside[-1] in "` " else ""
    return f"{fence}{edge}{inside}{edge}{fence}"


def prose(text: object) -> str:
    """A sentence in which nothing is markup."""
    return _ACTIVE.sub(r"\\\1", visible(text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
