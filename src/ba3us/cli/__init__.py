"""The command line: it parses, fills in a spec and shows a run, nothing more."""

from ba3us.cli import adapt, bench, commands  # noqa: F401
from ba3us.cli.app import app, main

__all__ = ["app", "main"]
