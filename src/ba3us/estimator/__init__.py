"""The scikit-learn face."""

from ba3us.estimator.adapter import PartialAdapter

__all__ = ["PartialAdapter"]
