"""The registry of methods: names, what is known of them, and published settings by dataset and task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeVar

from ba3us.errors import did_you_mean, require
from ba3us.methods.base import Method, MethodInfo
from ba3us.methods.options import MethodOptions
from ba3us.nn import Network

Settings = dict[str, Any]

TASKS: dict[str, tuple[str, ...]] = {
    name: tuple(f"{source}->{target}" for source, target in permutations(domains, 2))
    for name, domains in {
        "office31": ("A", "D", "W"),
        "office-home": ("Ar", "Cl", "Pr", "Rw"),
        "imagenet-caltech": ("C", "I"),
    }.items()
}

# images of each domain: of all classes (as source and as closed-set target), and as partial target
IMAGES: dict[str, dict[str, tuple[int, int]]] = {
    "office31": {"A": (2817, 958), "D": (498, 157), "W": (795, 295)},
    "office-home": {"Ar": (2427, 1089), "Cl": (4365, 1675), "Pr": (4439, 1785), "Rw": (4357, 1811)},
    "imagenet-caltech": {"C": (29780, 9257), "I": (1281167, 4200)},
}

# what the thuml family of programs shares; pinned, so that defaults may change
COMMON: Settings = {
    "warmup_steps": 0,
    "batch_size": 36,
    "backbone_scale": 0.1,
    "weight_decay": 1e-3,
    "momentum": 0.9,
    "decay_gamma": 0.001,
    "decay_steps": None,
    "bottleneck": 256,
    "bottleneck_norm": False,
}

# the budget of the BA³US programs; `learning_rate` is that of the new layers, ten times the backbone's
BUDGET: dict[str, Settings] = {
    "office31": {"steps": 2000, "refresh_every": 200, "learning_rate": 1e-3},
    "office-home": {"steps": 5000, "refresh_every": 500, "learning_rate": 1e-2},
    "imagenet-caltech": {"steps": 40000, "refresh_every": 4000, "learning_rate": 1e-2},
}


@dataclass(frozen=True)
class Published:
    """Settings for one dataset, over :data:`COMMON`, and what single tasks have of their own.

    `note` says where they come from if not from the method's own program. `oracle` marks per-task settings
    that were chosen by looking at target labels: a fair comparison says so beside its numbers.
    """

    settings: Settings
    tasks: dict[str, Settings] = field(default_factory=dict)
    note: str = ""
    oracle: bool = False


def with_budget(**settings: Any) -> dict[str, Published]:
    """The budget of BA³US on every dataset, for a method whose authors' is not known; `settings` on top."""
    return {d: Published({**budget, **settings}, note="the budget of BA³US") for d, budget in BUDGET.items()}


def by_epochs(
    protocol: str, count: Callable[[int, int], Settings], closed: bool = False
) -> dict[str, Settings]:
    """Settings of every task by its numbers of source and target images, for schedules in epochs.

    The target is partial, or with `closed` it has all classes.
    """
    images = IMAGES[protocol]
    pairs = {task: task.split("->") for task in TASKS[protocol]}
    column = 0 if closed else 1
    return {task: count(images[source][0], images[target][column]) for task, (source, target) in pairs.items()}


_M = TypeVar("_M", bound=type[Method])


@dataclass(frozen=True)
class Entry:
    """A named method: a method class, the settings that make it this method, and what is known of it.

    A `choice` among methods has a name and options like a method, but is not listed as one.
    """

    name: str
    method: type[Method]
    info: MethodInfo
    settings: dict[str, Any] = field(default_factory=dict)
    protocols: dict[str, Published] = field(default_factory=dict)
    choice: bool = False

    def options(self, protocol: str | None = None, task: str | None = None, **options: Any) -> MethodOptions:
        """The hyper-parameters: `options` over the method's own settings over those published.

        Without a `protocol` the defaults hold, which are the same budget for every method.
        """
        published = self._published(protocol, task) if protocol else {}
        return self.method.Options.build(**{**published, **self.settings, **options})

    def _published(self, protocol: str, task: str | None) -> Settings:
        """The settings published for a protocol and, if given, one of its tasks."""
        require(protocol in TASKS, f"Unknown protocol {protocol!r}: {did_you_mean(protocol, TASKS)}")
        missing = f"Method {self.name!r} has no published settings for {protocol!r}"
        require(protocol in self.protocols, f"{missing}: leave the protocol out for defaults.")
        known = task is None or task in TASKS[protocol]
        require(known, f"Unknown task {task!r} of {protocol!r}: {did_you_mean(str(task), TASKS[protocol])}")
        published = self.protocols[protocol]
        return {**COMMON, **published.settings, **published.tasks.get(task or "", {})}

    def settings_note(
        self, options: MethodOptions, protocol: str | None = None, task: str | None = None
    ) -> str:
        """Whether `options` are ba3us defaults or published for a protocol, and which of them depart."""
        changed = _different(options, self.options(protocol, task))
        given = " with " + ", ".join(f"{name}={value!r}" for name, value in changed.items()) if changed else ""
        if protocol is None:
            return f"ba3us defaults{given}"
        published = self.protocols[protocol]
        note, tuned = (f": {published.note}" if published.note else ""), "; tuned per task with target labels"
        return f"published ({protocol}{note}){given}{tuned if published.oracle else ''}"

    def departures(self, protocol: str) -> dict[str, Any]:
        """What was published for a protocol where the defaults differ; "by task" where tasks have their own."""
        tasks = [name for settings in self.protocols[protocol].tasks.values() for name in settings]
        return _different(self.options(protocol), self.options()) | dict.fromkeys(tasks, "by task")

    def defaults_note(self) -> str:
        """Whether the default settings are published ones, of whichever protocol comes nearest."""
        if not self.protocols:
            return "ba3us defaults (none published)"
        fewest = min(len(self.departures(protocol)) for protocol in self.protocols)
        return f"ba3us defaults ({fewest} differ)" if fewest else "published"

    def described(self) -> dict[str, Any]:
        """All that is known of the method, as plain data."""
        common = {f.name: f.default for f in dataclasses.fields(MethodOptions)}
        options = _resolved(self.options())
        own = {n: v for n, v in dataclasses.asdict(self.options()).items() if n not in common or v != common[n]}
        published: dict[str, dict[str, Any]] = {
            protocol: {"note": each.note, "oracle": each.oracle, "departures": self.departures(protocol)}
            for protocol, each in self.protocols.items()
        }
        return {
            "name": self.name,
            **dataclasses.asdict(self.info),
            "needs": list(self.info.needs),
            "settings": self.defaults_note(),
            "own_options": own,
            "defaults": {name: options[name] for each in published.values() for name in each["departures"]},
            "published": published,
        }

    def create(self, network: Network, options: MethodOptions) -> Method:
        """The method, for a network."""
        return self.method(options, network)


def _resolved(options: MethodOptions) -> dict[str, Any]:
    return dataclasses.asdict(options) | {"refresh_every": options.interval}


def _different(options: MethodOptions, other: MethodOptions) -> dict[str, Any]:
    """The `options` that have another value in `other`."""
    others = _resolved(other)
    return {name: value for name, value in _resolved(options).items() if value != others[name]}


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str,
    info: MethodInfo,
    protocols: dict[str, Published] | None = None,
    choice: bool = False,
    **settings: Any,
) -> Callable[[_M], _M]:
    """Class decorator: make a method known under `name`; stack it to name several settings of one class.

    `settings` make it this method and win over the settings published for a dataset (`protocols`).
    """

    def add(method: _M) -> _M:
        assert name not in _ENTRIES, name
        _ENTRIES[name] = Entry(name, method, info, settings, protocols or {}, choice)
        return method

    return add


def get(name: str) -> Entry:
    """The entry called `name`."""
    require(name in _ENTRIES, f"Unknown method {name!r}: {did_you_mean(name, _ENTRIES)}")
    return _ENTRIES[name]


def entries() -> Iterator[Entry]:
    """All methods, in alphabetical order."""
    return iter(sorted((e for e in _ENTRIES.values() if not e.choice), key=lambda e: e.name))
