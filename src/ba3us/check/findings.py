"""Findings: how much each matters, what it is, what to do about it, and where; and the registry of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

STOP, WARNING, NOTE = "stop", "warning", "note"
LEVELS = (STOP, WARNING, NOTE)  # training fails or means nothing; it is likely to suffer; good to know


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should know before training.

    Attributes
    ----------
    level : {"stop", "warning", "note"}
        How much it matters.
    topic : str
        A short name for machines, such as ``duplicates across``.
    text : str
        What was found, a sentence.
    advice : str
        What to do, a sentence.
    count : int
        Files, rows, pairs or classes it is about.
    items : tuple of str
        Which, the most telling first; at most a thousand.
    """

    level: str
    topic: str
    text: str
    advice: str
    count: int = 1
    items: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, level: str, topic: str, text: str, advice: str, items: Sequence[str], count: int | None = None
    ) -> Finding:
        """About each of `items`, or about `count` things that they name."""
        return cls(level, topic, text, advice, len(items) if count is None else count, tuple(items[:1000]))


@dataclass(frozen=True)
class Report:
    """The findings, those that matter most first, and plain figures of the two domains."""

    findings: list[Finding]
    facts: dict[str, Any]
    passed_over: list[str] = field(default_factory=list)  # what was not looked at, and why

    @classmethod
    def of(cls, findings: Iterable[Finding], facts: dict[str, Any], passed_over: Sequence[str] = ()) -> Report:
        """With the findings in order; within a level as they came."""
        return cls(sorted(findings, key=lambda finding: LEVELS.index(finding.level)), facts, list(passed_over))

    def summary(self) -> dict[str, Any]:
        """For machines."""
        counts = {level: sum(finding.level == level for finding in self.findings) for level in LEVELS}
        return {
            "findings": [asdict(finding) | {"items": list(finding.items)} for finding in self.findings],
            "counts": counts,
            "facts": self.facts,
            "passed_over": self.passed_over,
        }


Check = Callable[[Any], Iterator[Finding]]
CHECKS: dict[str, list[Check]] = {"arrays": [], "images": []}  # by kind of domains, in the order they are run


def register_check(*kinds: str) -> Callable[[Check], Check]:
    """Run the decorated function for domains of these `kinds`: ``arrays``, ``images``.

    It takes the opened domains (:class:`ba3us.check.domains.Domains`) and yields a :class:`Finding` for each
    thing that somebody should know. Nothing else has to be changed to add a check.
    """

    def register(function: Check) -> Check:
        for kind in kinds:
            CHECKS[kind].append(function)
        return function

    return register


def some(items: Sequence[Any], most: int = 3) -> str:
    """The first few, in words."""
    shown = ", ".join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown}, and {len(items) - most} more"


def many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
