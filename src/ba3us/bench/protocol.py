"""A protocol: which domains there are, which classes a target keeps, and which tasks to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ba3us.data import Source, Target
from ba3us.data.files import read_features
from ba3us.errors import UserError, did_you_mean, require

_KEYS = {"name", "domains", "tasks", "target_classes", "options"}


@dataclass(frozen=True)
class Task:
    """Adapt from one domain to another; written ``A->B``."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True)
class Protocol:
    """What to measure.

    Attributes
    ----------
    name : str
        Its name in tables.
    domains : dict
        Feature files (``.npz`` with features, labels and class names) by domain name.
    tasks : tuple of Task
        Which source goes with which target.
    target_classes : tuple of str, optional
        The classes a target is restricted to; all of its file's if not given.
    options : dict
        Hyper-parameters for every method, under those given on the command line.
    """

    name: str
    domains: dict[str, Path]
    tasks: tuple[Task, ...]
    target_classes: tuple[str, ...] | None
    options: dict[str, Any]

    def load(self, task: Task) -> tuple[Source, Target, np.ndarray]:
        """The labelled source, the unlabelled target, and the target's labels for scoring afterwards."""
        source, source_labels, names = self._labelled(task.source)
        target, target_labels, target_names = self._labelled(task.target)
        kept = np.arange(len(target_labels))
        if self.target_classes is not None:
            kept = np.flatnonzero(np.isin(np.array(target_names)[target_labels], self.target_classes))
            require(len(kept) > 0, f"Domain {task.target!r} has no sample of the target_classes.")
        labels = []
        number = {name: i for i, name in enumerate(names)}
        for name in (target_names[i] for i in target_labels[kept]):
            require(
                name in number, f"Class {name!r} of {task.target!r} is not one of {task.source!r}'s classes."
            )
            labels.append(number[name])
        return (
            Source(source, source_labels, num_classes=len(names)),
            Target(target[kept]),
            np.array(labels),
        )

    def _labelled(self, domain: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
        found = read_features(self.domains[domain])
        if found.labels is None or found.class_names is None:
            raise UserError(f"{self.domains[domain]} has no labels or class_names: a benchmark needs both.")
        return found.features, found.labels, found.class_names


def read_protocol(path: str | Path, features: str | Path | None = None) -> Protocol:
    """Read a YAML protocol; feature files are looked for in `features`, or beside the protocol."""
    path = Path(path)
    require(path.is_file(), f"There is no protocol at {path}: check the path.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {str(error).splitlines()[0]}.") from error
    require(isinstance(content, dict), f"{path} must be a mapping with {', '.join(sorted(_KEYS))}.")
    for key in content:
        require(key in _KEYS, f"{path} has an unknown key {key!r}: {did_you_mean(str(key), _KEYS)}")
    for key in ("domains", "tasks"):
        require(bool(content.get(key)), f"{path} has no {key}: name at least one.")
    folder = Path(features) if features is not None else path.parent
    domains = {str(name): folder / str(file) for name, file in content["domains"].items()}
    return Protocol(
        name=str(content.get("name", path.stem)),
        domains=domains,
        tasks=tuple(_task(str(text), domains, path) for text in content["tasks"]),
        target_classes=tuple(content["target_classes"]) if content.get("target_classes") else None,
        options=dict(content.get("options") or {}),
    )


def _task(text: str, domains: dict[str, Path], path: Path) -> Task:
    parts = [part.strip() for part in text.split("->")]
    require(len(parts) == 2, f"Task {text!r} in {path} is not of the form A->B.")
    for name in parts:
        require(name in domains, f"Task {text!r} in {path} names {name!r}: {did_you_mean(name, domains)}")
    return Task(*parts)
