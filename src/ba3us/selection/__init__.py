"""Selection: which classes are present, did it help; scoring kept predictions by those who hold labels."""

from ba3us.selection.labels import read_target_labels
from ba3us.selection.presence import class_shares, presence
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
    "presence",
    "read_target_labels",
    "scored",
    "selected_accuracy",
    "summary",
    "updates_before",
]
