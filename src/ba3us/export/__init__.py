"""A run's model as a file that needs neither torch nor ba3us, with a card that says what it is."""

from ba3us.export.exporting import export

__all__ = ["export"]
