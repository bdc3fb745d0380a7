"""The pages of the documentation, and what stands in their code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def name_of(page: Path) -> str:
    """``docs/trust.md``."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks in one of these languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[str]:
    """Lines of console blocks and of indented ones, joined where a backslash ends them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (?=\S)(.*(?:\\\n.*)*)$", plain, flags=re.MULTILINE)
    for block in [*blocks(text, "console", "sh", "bash"), *indented]:
        yield from block.replace("\\\n", " ").splitlines()
