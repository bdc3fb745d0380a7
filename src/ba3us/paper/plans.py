"""What each table and figure of the paper needs, as data: protocols, tasks, systems, options.

Rows are called as the paper prints them and stand in its order. A row without a method is on paper only:
its number is shown, nothing is run for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.published import TASKS

_NUMBERS = (1, 2, 3, 4, 5, 7, 10, 15, 25, 35, 45, 55, 65)  # of target classes, for any protocol
Drawing = Literal["table", "accuracy_by_classes", "class_weights", "convergence", "embedding"]


@dataclass(frozen=True)
class Row:
    """A system as the paper prints it, our method for it (none: on paper only), and its options."""

    printed: str
    method: str | None
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Part:
    """Rows on the tasks of one protocol.

    Attributes
    ----------
    protocol : str
        A protocol of the benchmark.
    tasks : tuple of str
        In the order of the columns.
    rows : tuple of Row
        The systems.
    drawing : str
        "table", or the function of :mod:`ba3us.paper.figures`.
    dataset, setting, backbone : str
        As the paper prints them; empty once the part is moved to a protocol the paper has not.
    target_classes : tuple of int
        The target keeps the first k classes in alphabetical order, for each of these; empty: the protocol's.
    """

    protocol: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    drawing: Drawing = "table"
    dataset: str = ""
    setting: str = "PDA"
    backbone: str = "ResNet-50"
    target_classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One table or figure: its name, what it shows, and its parts."""

    name: str
    title: str
    parts: tuple[Part, ...]

    def on(self, protocol: str, tasks: Sequence[str], target_classes: Sequence[int] = ()) -> Plan:
        """The same systems and drawings on another protocol's tasks; parts that become alike are joined.

        `target_classes` are the numbers of classes of a study that has them, as far as there are so many.
        """
        require(len(tasks) > 0, f"{self.name} is to run on no task of {protocol!r}: name at least one.")
        moved: dict[Part, list[Row]] = {}
        for part in self.parts:
            numbers = tuple(target_classes or _NUMBERS) if part.target_classes else ()
            place = Part(protocol, tuple(tasks), (), part.drawing, "", part.setting, "", numbers)
            rows = moved.setdefault(place, [])
            rows += [row for row in part.rows if row not in rows]
        return replace(self, parts=tuple(replace(place, rows=tuple(rows)) for place, rows in moved.items()))


_31, _HOME = ("office31", "Office31"), ("office-home", "Office-Home")
_IMAGENET = ("imagenet-caltech", "ImageNet-Caltech")
_AUGMENTED = "the printed number was measured with augmentation at evaluation, ours is not"


def _rows(*printed: str) -> tuple[Row, ...]:
    baselines = ("ResNet-50", "VGG-16", "Source only")
    return tuple(Row(name, "source-only" if name in baselines else name.lower()) for name in printed)


def _part(data: tuple[str, str], rows: tuple[Row, ...], *tasks: str, suffix: str = "", **other: Any) -> Part:
    return Part(data[0] + suffix, tasks or TASKS[data[0]], rows, dataset=data[1], **other)


def _sweep(option: str, *values: float) -> tuple[Part, ...]:
    rows = tuple(Row(f"BA3US ({option}={value})", "ba3us", {option: value}) for value in values)
    return _part(_HOME, rows), _part(_31, rows)


_FIRST = _rows("ResNet-50", "ADDA", "CDAN+E", "IWAN", "SAN", "PADA")
_LAST = _rows("E-DANN", "BAA", "BA3US")
_OURS = _rows("Source only") + _LAST  # the systems of figures 3a, 4 and 5
_CLOSED = (
    Row("CDAN+E*", "cdan+e", note=_AUGMENTED),
    *_rows("MCS", "DRCN"),
    Row("CDAN+TransNorm*", "cdan+transnorm", note=_AUGMENTED),
    Row("SAFN*", None, note="SAFN with augmentation at evaluation, which ours has not"),
    *_rows("SAFN"),
    *(Row(name, f"{name.lower()}-closed") for name in ("BAA", "BA3US", "BAA+CDAN", "BA3US+CDAN")),
)

_TABLE1 = _part(_HOME, _FIRST + _rows("SSPDA", "MWPDA", "ETN", "DRCN", "SAFN") + _LAST)
_TABLE2 = (
    _part(_31, _FIRST + _rows("SSPDA", "MWPDA", "DRCN", "ETN") + _LAST),
    _part(_IMAGENET, _FIRST + _rows("DRCN", "ETN") + _LAST, "I->C", "C->I"),
)
_VGG = _rows("VGG-16", "IWAN", "SAN", "PADA", "ETN", "BA3US")
_TABLE3 = _part(_31, _VGG, suffix="-vgg16", backbone="VGG-16")
_TABLE4 = _part(_HOME, _CLOSED, suffix="-closed", setting="closed-set")
_FIGURE3 = (
    # the paper does not print its numbers of classes; its text speaks of a fall after 15, Office-Home has 65
    _part(
        _HOME, _OURS, "Ar->Cl", drawing="accuracy_by_classes", target_classes=(5, 10, 15, 25, 35, 45, 55, 65)
    ),
    _part(_HOME, _rows("BA3US"), "Ar->Cl", drawing="class_weights"),
    _part(_31, _rows("BA3US"), "A->D", drawing="class_weights"),
)


def _both(drawing: Drawing) -> tuple[Part, ...]:
    return tuple(_part(data, _OURS, task, drawing=drawing) for data, task in ((_HOME, "Ar->Cl"), (_31, "A->D")))


PLANS = {
    name: Plan(name, title, parts)
    for name, title, parts in (
        ("table1", "Accuracy (%) on Office-Home, partial", (_TABLE1,)),
        ("table2", "Accuracy (%) on Office31 and ImageNet-Caltech, partial", _TABLE2),
        ("table3", "Accuracy (%) on Office31, partial, VGG-16", (_TABLE3,)),
        ("table4", "Accuracy (%) on Office-Home, closed set", (_TABLE4,)),
        ("table5", "Sensitivity to ξ", _sweep("xi", 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)),
        ("table6", "Sensitivity to β", _sweep("beta", 0.0, 0.1, 0.5, 1.0, 5.0, 10.0)),
        ("figure3", "Accuracy by number of target classes; estimated class weights", _FIGURE3),
        ("figure4", "Accuracy over the updates", _both("convergence")),
        ("figure5", "t-SNE of source and target", _both("embedding")[::-1]),
    )
}


def plan(name: str) -> Plan:
    """The plan of a table or figure, such as ``table1`` or ``figure4``."""
    if name not in PLANS:
        raise UserError(f"There is no plan for {name!r}: {did_you_mean(name, PLANS)}")
    return PLANS[name]
