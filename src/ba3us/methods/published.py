"""Published settings as data: which datasets, which tasks, and what every method's authors ran them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from ba3us.errors import did_you_mean, require

Settings = dict[str, Any]

TASKS: dict[str, tuple[str, ...]] = {
    name: tuple(f"{source}->{target}" for source, target in permutations(domains, 2))
    for name, domains in {
        "office31": ("A", "D", "W"),
        "office-home": ("Ar", "Cl", "Pr", "Rw"),
        "imagenet-caltech": ("C", "I"),
    }.items()
}

# images of each domain, as source (all classes) and as partial target
IMAGES: dict[str, dict[str, tuple[int, int]]] = {
    "office31": {"A": (2817, 958), "D": (498, 157), "W": (795, 295)},
    "office-home": {"Ar": (2427, 1089), "Cl": (4365, 1675), "Pr": (4439, 1785), "Rw": (4357, 1811)},
    "imagenet-caltech": {"C": (29780, 9257), "I": (1281167, 4200)},
}

# what the thuml family of programs shares; pinned, so that our own defaults may change
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


def lookup(method: str, published: dict[str, Published], protocol: str, task: str | None) -> Settings:
    """The settings `method` published for a protocol and, if given, one of its tasks."""
    require(protocol in TASKS, f"Unknown protocol {protocol!r}: {did_you_mean(protocol, TASKS)}")
    require(
        protocol in published,
        f"Method {method!r} has no published settings for {protocol!r}: leave the protocol out for defaults.",
    )
    tasks = TASKS[protocol]
    require(
        task is None or task in tasks,
        f"Unknown task {task!r} of {protocol!r}: {did_you_mean(str(task), tasks)}",
    )
    found = published[protocol]
    return {**COMMON, **found.settings, **found.tasks.get(task or "", {})}


def by_epochs(protocol: str, count: Callable[[int, int], Settings]) -> dict[str, Settings]:
    """Settings of every task by its numbers of source and target images, for schedules in epochs."""
    images = IMAGES[protocol]
    pairs = {task: task.split("->") for task in TASKS[protocol]}
    return {task: count(images[source][0], images[target][1]) for task, (source, target) in pairs.items()}
