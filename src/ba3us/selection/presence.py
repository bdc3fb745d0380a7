"""Which source classes the target holds, judged from its predictions alone."""

from __future__ import annotations

import numpy as np


def class_shares(predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Share of the rows that are predicted as each class, [n] → [C]; sums to one."""
    return np.bincount(predictions, minlength=num_classes) / len(predictions)


def present_classes(shares: np.ndarray) -> np.ndarray:
    """Whether each class is present: its share of predictions is above 1/(2C). [C] → bool [C].

    A provisional rule of thumb: half of what each class would get if all were equally frequent. Rare but
    present classes fall below it where C is small, and it says nothing of how sure it is.
    """
    return shares > 1 / (2 * len(shares))
