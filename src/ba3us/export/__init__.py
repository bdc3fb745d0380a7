"""Export of a run's model as a file that needs neither torch nor ba3us, with a model card."""

from ba3us.export.exporting import export

__all__ = ["export"]
