"""What could go wrong, before training: ``ba3us check``.

A check is one function that yields findings, with the decorator :func:`register_check`. Findings of one level
are reported in the order of the imports below, and of the functions in each file.
"""

from __future__ import annotations

# isort: off
from ba3us.check import classes, arrays, images, duplicates, closeness  # noqa: F401 (they register their checks)

# isort: on
from ba3us.check.arrays import ArrayDomains
from ba3us.check.domains import Domains
from ba3us.check.findings import CHECKS, LEVELS, Finding, Report, register_check
from ba3us.check.images import ImageDomains
from ba3us.progress import bar
from ba3us.run.spec import Spec

__all__ = ["LEVELS", "Finding", "Report", "check", "register_check"]


def check(spec: Spec, *, show: bool = False, cost: bool = True) -> Report:
    """Look at the domains of a spec; with `cost`, also time training on this machine.

    What could harm is a :class:`Finding`, and so is what training would refuse; that the target holds only some
    of the source's classes is none. What can't be read at all is a :class:`~ba3us.errors.UserError`.
    """
    has_images = spec.kind == "images"  # decoding and embedding them show their own progress
    domains: Domains = ImageDomains(spec, show) if has_images else ArrayDomains(spec)
    checks, findings = CHECKS["images" if has_images else "arrays"], list[Finding]()
    with bar("Checking", len(checks) + 1, show and not has_images) as progress:
        for number, function in enumerate(checks):
            progress.update(number, function.__name__.replace("_", " "))
            findings += function(domains)
        facts, passed_over, vectors = domains.facts | domains.figures(), domains.passed_over, domains.vectors
        n_source, n_target = map(len, domains.names.values())
        if vectors is None:
            passed_over.append("Classes and domains: fix what is above first.")
        elif (len(vectors.source), len(vectors.target)) != (n_source, n_target):
            passed_over.append(
                f"Classes and domains were judged by {len(vectors.source):,} of {n_source:,} source "
                f"{domains.noun}s and {len(vectors.target):,} of {n_target:,} target {domains.noun}s."
            )
        progress.update(len(checks), "cost")
        if cost and vectors is not None and (costs := domains.costs()) is not None:
            facts["cost"] = costs
        progress.update(len(checks) + 1)
    return Report.of(findings, facts, passed_over)
