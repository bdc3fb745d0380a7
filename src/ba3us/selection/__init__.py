"""Selection: which classes are present, did it help; scoring kept predictions by those who hold labels."""

from ba3us.selection.presence import class_shares, presence
from ba3us.selection.scoring import LAST, ORACLE, Score, accuracies, scored, selected_accuracy, summary

__all__ = [
    "LAST",
    "ORACLE",
    "Score",
    "accuracies",
    "class_shares",
    "presence",
    "scored",
    "selected_accuracy",
    "summary",
]
