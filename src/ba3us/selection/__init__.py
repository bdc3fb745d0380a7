"""Selection: scoring kept predictions afterwards, by calls that are given labels."""

from ba3us.selection.scoring import accuracies, selected_accuracy, summary

__all__ = ["accuracies", "selected_accuracy", "summary"]
