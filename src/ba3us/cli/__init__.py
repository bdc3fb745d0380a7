"""The command line: it parses options, fills in a spec and shows a run, nothing more."""

from ba3us.cli import adapt, bench, commands  # noqa: F401
from ba3us.cli.app import app, main

__all__ = ["app", "main"]

_ORDER = ["demo", "check", "adapt", "report", "predict", "export", "embed", "methods", "bench", "paper"]
app.registered_commands.sort(key=lambda command: _ORDER.index(command.callback.__name__))  # type: ignore[union-attr]
