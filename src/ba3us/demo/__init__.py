"""The demo: real digits of two kinds, nothing to download."""

from ba3us.demo.run import Outcome, run

__all__ = ["Outcome", "run"]
