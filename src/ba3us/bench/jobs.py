"""From a protocol to the runs it takes: every job is one method, one dataset, one seed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from ba3us import __version__, methods
from ba3us.bench.domains import Dataset, Pair, digest_of
from ba3us.bench.images import Sight
from ba3us.bench.protocol import Protocol
from ba3us.errors import did_you_mean, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.base import MethodOptions
from ba3us.methods.published import TASKS
from ba3us.methods.registry import Entry
from ba3us.nn import Network

THREADS = 1  # of a run; sums depend on it in the last bit


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One run. `label` is its row in tables; `settings` says whose its options are.

    `evaluate_every`: look at the target also every so many updates, not only where the method asks for it.
    `tell` hears, in the process that carries it out, which share of it is done.
    """

    label: str
    protocol: str
    task: str
    variant: str
    method: str
    seed: int
    options: dict[str, Any]
    settings: str
    data: str
    pair: Pair
    images: Sight | None = None
    evaluate_every: int | None = None
    key: str = ""
    tell: Callable[[float], None] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that the result depends on, as JSON values."""
        versions = {"ba3us": __version__, "torch": torch.__version__, "numpy": np.__version__}
        named = {name: getattr(self, name) for name in ("method", "options", "seed", "data")}
        seen = {} if self.images is None else {"images": self.images.described}
        looks = {} if self.evaluate_every is None else {"evaluate_every": self.evaluate_every}
        return {**named, **seen, **looks, "threads": THREADS, "versions": versions}


@dataclass(frozen=True)
class System:
    """A row of a table: its label, its method, and options that make it this row."""

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


def labelled(names: Sequence[str], label: str = "{method}") -> list[System]:
    """Methods as they are, under their own names or a pattern of them."""
    strange = re.findall(r"{.*?}|[{}]", label.replace("{method}", ""))
    require(not strange, f"The label {label!r} has {strange[:1]}: only {{method}} is replaced.")
    alone = len(names) == 1 or "{method}" in label
    require(alone, f"The label {label!r} is the same for {len(names)} methods: put {{method}} into it.")
    return [System(label.replace("{method}", name), name) for name in names]


def chosen_methods(text: str, images: bool = False) -> list[str]:
    """Names from a comma-separated list; ``all`` is every method that takes such samples."""
    lacking = set() if images else {"pixels", "batch norm"}
    if text.strip() == "all":
        return [e.name for e in methods.entries() if not lacking & set(e.info.needs)]
    names = [methods.get(name).name for name in listed(text)]
    for name in names:
        require(names.count(name) == 1, f"Method {name!r} is given twice: leave one of them out.")
        needs = methods.get(name).info.needs
        require(images or "pixels" not in needs, f"Method {name!r} needs pixels, not features.")
    require(bool(names), "No method is given: name some, or all.")
    return names


def listed(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def narrowed(protocol: Protocol, tasks: str | None, variants: str | None, rules: str | None) -> Protocol:
    """The protocol with only the tasks and variants named, and other selection rules."""
    by_task = {task.name: task for task in protocol.tasks}
    by_variant = {subset.name: subset for subset in protocol.targets}
    for text, known, what in ((tasks, by_task, "task"), (variants, by_variant, "variant")):
        for name in listed(text or ""):
            require(name in known, f"{protocol.name} has no {what} {name!r}: {did_you_mean(name, known)}")
    return dataclasses.replace(
        protocol,
        tasks=tuple(by_task[name] for name in dict.fromkeys(listed(tasks or ""))) or protocol.tasks,
        targets=tuple(by_variant[name] for name in dict.fromkeys(listed(variants or ""))) or protocol.targets,
        selection=tuple(dict.fromkeys(listed(rules or ""))) or protocol.selection,
    )


def jobs(
    protocol: Protocol,
    datasets: Sequence[Dataset],
    systems: Sequence[System],
    seeds: int,
    given: dict[str, Any],
    images: Sight | None = None,
    evaluate_every: int | None = None,
) -> list[Job]:
    """All combinations; an option that a method does not have is left out for it; ``etn.steps`` is ETN's."""
    require(seeds >= 1, f"The number of seeds is {seeds}: it must be at least 1.")
    _check_used([system.method for system in systems], given)
    made = []
    for data in datasets:
        for system in systems:
            entry = methods.get(system.method)
            config, settings, published = _resolved(protocol, entry, data.task, given | system.options)
            seen = images
            if images is not None:
                _check_classifier(config, data)
                seen = images.with_views(published and _from_views(entry, config))
            for seed in range(seeds):
                job = Job(
                    label=system.label,
                    protocol=protocol.name,
                    task=data.task,
                    variant=data.variant,
                    method=entry.name,
                    seed=seed,
                    options=dataclasses.asdict(config),
                    settings=settings,
                    data=data.digest,
                    pair=data.pair,
                    images=seen,
                    evaluate_every=None if entry.name == AUTO else evaluate_every,
                )
                made.append(dataclasses.replace(job, key=digest_of(json.dumps(job.spec, sort_keys=True))))
    return sorted(made, key=lambda job: job.seed)  # stable: a first look at all tasks comes early


def tuned_with_labels(protocol: Protocol, names: Sequence[str]) -> list[str]:
    """Methods whose published settings for one of the tasks were chosen by looking at target labels."""
    published = {name: methods.get(name).protocols.get(protocol.published or "") for name in names}
    tasks = {task.name for task in protocol.tasks}
    return [
        name for name, its in published.items() if its is not None and its.oracle and tasks & its.tasks.keys()
    ]


def _check_used(names: Sequence[str], given: dict[str, Any]) -> None:
    known = {name: _known(methods.get(name)) for name in names}
    every = {option for options in known.values() for option in options}
    for option in given:
        method, _, own = option.rpartition(".")
        choices = known.get(method, set()) if method else every
        require(
            own in choices,
            f"Option {option!r} belongs to none of the methods chosen: " + did_you_mean(own, choices or every),
        )


def _resolved(
    protocol: Protocol, entry: Entry, task: str, given: dict[str, Any]
) -> tuple[MethodOptions, str, bool]:
    """Every option of a method on a task, whose settings they are, and whether they are published ones."""
    own = {option.rpartition(".")[2]: v for option, v in given.items() if option.startswith(f"{entry.name}.")}
    changed = {
        **{option: v for option, v in protocol.options.items() if option in _known(entry)},
        **protocol.method_options.get(entry.name, {}),
        **{option: v for option, v in given.items() if option in _known(entry)},
        **own,
    }
    published = protocol.published if protocol.published in entry.protocols else None
    where = task if published and task in TASKS[published] else None
    config = entry.options(protocol=published, task=where, **changed)
    return config, entry.settings_note(config, published, where), published is not None


def _from_views(entry: Entry, config: MethodOptions) -> bool:
    """Whether the method refreshes from several views of the target."""
    with torch.device("meta"):
        network = Network(nn.Identity(), 2, 2, entry.method.head(config), nn.Linear(2, 2))
        return entry.create(network, config).recipe().refresh.views


def _check_classifier(config: MethodOptions, data: Dataset) -> None:
    """A backbone's own classifier numbers its classes in alphabetical order (ImageNet's WordNet ids)."""
    require(
        not config.keep_classifier or list(data.classes) == sorted(data.classes),
        f"{data.task} keeps the backbone's classifier, but its classes are not in alphabetical order: name "
        "them so, or add --set keep_classifier=false.",
    )


def _known(entry: Entry) -> set[str]:
    """The options that a method makes use of."""
    kind = entry.method.Options
    return {f.name for f in fields(kind)} - {*kind.unused}
