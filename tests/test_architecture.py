"""The rooms of the package: which may import which, and how long a file may get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ba3us

PACKAGE = Path(ba3us.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# top to bottom: a room imports only from those above it
ROOMS = (
    "errors", "progress", "losses", "schedules", "scores", "nn", "data", "methods", "training",
    "assess", "run", "auto", "adapt", "embed", "check", "export", "report", "estimator", "bench", "paper",
    "demo", "cli",
)  # fmt: skip
FACE = "__init__"  # the package's own names; it may import any room
FORBIDDEN = {("methods", "data"), ("methods", "training"), ("report", "paper"), ("report", "bench")}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_rooms(source: str, package: str = "ba3us") -> Iterator[str]:
    """Rooms that a module's text imports, anywhere in it (also inside functions and TYPE_CHECKING)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative imports hide the direction
                raise AssertionError(f"relative import in line {node.lineno}")
            names = [f"{base}.{alias.name}" for alias in node.names] if base == package else [base]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == package and rest:
                yield rest.split(".")[0]


def breaches(room: str, source: str) -> list[str]:
    """Imports in `source`, a module of `room`, that go against the direction."""
    if room in (FACE, "__main__"):
        return []
    found = []
    for other in imported_rooms(source):
        if other.startswith("__") or other == room:
            continue
        if ROOMS.index(other) > ROOMS.index(room) or (room, other) in FORBIDDEN:
            found.append(f"{room} imports {other}")
    return found


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("losses", "from ba3us import scores"),
        ("losses", "import ba3us.scores"),
        ("nn", "def f():\n    from ba3us.training.loop import Trainer"),
        ("methods", "from ba3us.data import Target"),
        ("methods", "from ba3us import errors, training"),
        ("training", "if TYPE_CHECKING:\n    from ba3us.assess.scoring import summary"),
        ("scores", "from ba3us import (\n    losses,\n    cli,\n)"),
    ],
)
def test_breaches_are_seen(room, source):
    assert len(breaches(room, source)) == 1


def test_allowed_imports_pass():
    source = "import torch\nfrom ba3us import __version__, errors\nfrom ba3us.nn import Network\nimport ba3us"
    assert breaches("methods", source) == []
    with pytest.raises(AssertionError, match="relative import"):
        breaches("methods", "from ..data import Target")


def test_every_room_of_the_core_exists():
    present = {room_of(path) for path in MODULES}
    assert set(ROOMS[: ROOMS.index("assess") + 1]) <= present
