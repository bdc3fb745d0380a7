"""What could go wrong, before training: ``ba3us check``."""

from __future__ import annotations

from ba3us.check.arrays import check_features
from ba3us.check.findings import LEVELS, Finding, Report
from ba3us.check.images import check_images
from ba3us.run.spec import Spec

__all__ = ["LEVELS", "Finding", "Report", "check"]


def check(spec: Spec, *, show: bool = False, cost: bool = True) -> Report:
    """Look at the domains of a spec; with `cost`, also time training on this machine.

    What could harm is a :class:`Finding`, and so is what training would refuse; that the target holds only some
    of the source's classes is none. What can't be read at all is a :class:`~ba3us.errors.UserError`.
    """
    return (check_images if spec.kind == "images" else check_features)(spec, show, cost)
