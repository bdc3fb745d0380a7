"""Selection: which classes are present; scoring kept predictions afterwards, by calls that are given labels."""

from ba3us.selection.presence import class_shares, present_classes
from ba3us.selection.scoring import accuracies, confusion, selected_accuracy, summary

__all__ = ["accuracies", "class_shares", "confusion", "present_classes", "selected_accuracy", "summary"]
