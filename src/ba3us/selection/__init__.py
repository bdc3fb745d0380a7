"""Selection: which classes are present; scoring kept predictions afterwards, by calls that are given labels."""

from ba3us.selection.labels import read_target_labels
from ba3us.selection.presence import class_shares, present_classes
from ba3us.selection.scoring import (
    LAST,
    ORACLE,
    Score,
    accuracies,
    scored,
    selected_accuracy,
    summary,
    updates_before,
)

__all__ = [
    "LAST",
    "ORACLE",
    "Score",
    "accuracies",
    "class_shares",
    "present_classes",
    "read_target_labels",
    "scored",
    "selected_accuracy",
    "summary",
    "updates_before",
]
