"""A protocol: its domains, the classes that a target keeps, its tasks, and the paper's numbers for them.

Files are checked by hand: with pydantic the rules between keys would stay, and the file would be no shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ba3us import methods
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.registry import TASKS

SHIPPED = Path(str(files("ba3us.bench") / "protocols"))
AVERAGE = "Avg"  # the column of averages in the paper's tables


def superscripted(label: str) -> str:
    """A label with the superscript that commands and tables of numbers do without."""
    return label.replace("BA3US", "BA³US")


@cache
def results() -> pd.DataFrame:
    """Accuracies (%) of tables 1–6: table, protocol, method (registered name), printed, task, accuracy, std."""
    return pd.read_csv(str(files("ba3us.bench") / "paper_results.csv"), comment="#")


def protocols() -> list[str]:
    """The protocols that the paper has a table of."""
    return sorted(results()["protocol"].unique())


def paper_accuracies(protocol: str | None) -> dict[tuple[str, str], float]:
    """Accuracies (%) by method, or a row's own label in the studies of ξ and β, and task (or ``Avg``)."""
    rows = results()[results()["protocol"] == protocol]
    return dict(zip(zip(rows["method"], rows["task"]), rows["accuracy"]))


@dataclass(frozen=True)
class Task:
    """Adapt from one domain to another; called ``A->B`` unless the protocol names it otherwise."""

    source: str
    target: str
    name: str


@dataclass(frozen=True)
class Subset:
    """Which classes a target keeps: the alphabetically `first`, those named, `count` drawn by seed, or all."""

    name: str = ""
    first: int | None = None
    classes: tuple[str, ...] | None = None
    count: int | None = None
    draw: int = 0

    def pick(self, shared: Iterable[str]) -> list[str] | None:
        """The classes kept out of those that source and target share; None: all that the target has."""
        names = sorted(shared, key=lambda name: (name.casefold(), name))
        wanted = self.first or self.count or 0
        require(
            wanted <= len(names),
            f"The target is to keep {wanted} classes, but source and target share {len(names)}: ask for fewer.",
        )
        for name in self.classes or ():
            require(name in names, f"No class {name!r} is in source and target: {did_you_mean(name, names)}")
        if self.count:
            return sorted(np.random.default_rng(self.draw).choice(names, self.count, replace=False).tolist())
        return list(self.classes) if self.classes else names[: self.first] if self.first else None


@dataclass(frozen=True)
class Protocol:
    """What to measure.

    Attributes
    ----------
    name, title : str
        For machines and for people.
    domains : dict
        By name: paths of a feature file (.npz), image folder or list file; the first that exists is used.
    tasks : tuple of Task
        Which source goes with which target.
    folder : Path
        The folder that paths start from, if no root is given.
    classes : tuple of str, optional
        The source's classes; by default all of its file's.
    rename : dict
        By domain: other names for some of its classes, so that domains agree.
    targets : tuple of Subset
        Which classes a target keeps; several make a study over several targets.
    backbone : str, optional
        The backbone for images.
    published, paper : str, optional
        The dataset whose published settings to take (``office31``), and whose printed numbers to show.
    options, method_options : dict
        Hyper-parameters for all methods that have them, and for single methods.
    seeds : int
        How many, by default.
    selection : tuple of str
        Rules that choose a checkpoint; tables compare methods by the first.
    expected : dict
        By domain: the expected number of samples, in all or by class.
    """

    name: str
    title: str
    domains: dict[str, tuple[str, ...]]
    tasks: tuple[Task, ...]
    folder: Path = Path()
    classes: tuple[str, ...] | None = None
    rename: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: tuple[Subset, ...] = (Subset(),)
    backbone: str | None = None
    published: str | None = None
    paper: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    method_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    seeds: int = 3
    selection: tuple[str, ...] = ("entropy",)
    expected: dict[str, int | dict[str, int]] = field(default_factory=dict)


def shipped() -> list[str]:
    """Names of the protocols that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def read_protocol(named: str | Path) -> Protocol:
    """The shipped protocol of that name, or the one in a YAML file."""
    path = Path(named)
    if not path.is_file():
        known, name = shipped(), str(named)
        require(
            name in known, f"There is no protocol {name!r}, neither file nor name: {did_you_mean(name, known)}"
        )
        path = SHIPPED / f"{named}.yaml"
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}.") from error
    try:
        return _parse(content, path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML as it is, except that a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} is given twice")
        return super().construct_mapping(node, deep)


def _parse(content: Any, path: Path) -> Protocol:
    """A protocol from the content of a YAML file, strictly."""
    given = {key: value for key, value in _mapping(content, "the file").items() if value is not None}
    _known(given, {f.name for f in fields(Protocol)} - {"folder", "targets"} | {"target"}, "key")
    for key in ("domains", "tasks"):
        require(bool(given.get(key)), f"There are no {key}: name at least one.")
    paths = _mapping(given["domains"], "domains")
    domains = {k: _texts([v] if isinstance(v, str) else v, f"domain {k!r}") for k, v in paths.items()}
    texts = {
        key: _text(given[key], key)
        for key in ("name", "title", "backbone", "published", "paper")
        if key in given
    }
    for key, choices in (("published", list(TASKS)), ("paper", protocols())):
        _known([texts[key]] if key in texts else [], choices, key)
    lists = {key: _texts(given[key], key) for key in ("classes", "selection") if key in given}
    rename, expected, options, method_options = (
        _mapping(given.get(key, {}), key) for key in ("rename", "expected", "options", "method_options")
    )
    for key, by_domain in (("rename", rename), ("expected", expected)):
        _known(by_domain, domains, f"domain in {key}:")
    _known(options, {f.name for entry in methods.entries() for f in fields(entry.method.Options)}, "option")
    for name, each in method_options.items():
        methods.get(name).options(**_mapping(each, f"method_options of {name}"))
    return Protocol(
        **{"name": path.stem, "title": texts.get("name", path.stem), **texts},  # type: ignore[arg-type]
        **lists,  # type: ignore[arg-type]
        domains=domains,
        tasks=_tasks(given["tasks"], domains),
        folder=Path() if path.parent == SHIPPED else path.parent,
        rename={k: {a: _text(b, a) for a, b in _mapping(v, "rename").items()} for k, v in rename.items()},
        targets=_subsets(given.get("target", "all"), lists.get("classes")),
        options=options,
        method_options=method_options,
        seeds=_whole(given.get("seeds", 3), "seeds", 1),
        expected={
            name: {c: _whole(n, f"{where}, {c}", 0) for c, n in _mapping(counts, where).items()}
            if isinstance(counts, dict)
            else _whole(counts, where, 1)
            for name, counts in expected.items()
            for where in [f"expected of {name}"]
        },
    )


def _tasks(given: Any, domains: dict[str, Any]) -> tuple[Task, ...]:
    if given == "all":
        return tuple(Task(a, b, f"{a}->{b}") for a, b in permutations(domains, 2))
    require(isinstance(given, list), f"The tasks are {given!r}: write a list of A->B, or all.")
    tasks = []
    for each in given:
        task = {"name": each} if isinstance(each, str) else each
        complete = isinstance(task, dict) and task.keys() in ({"name"}, {"name", "source", "target"})
        require(complete, f"A task is {each!r}: write A->B, or its name, source and target.")
        ends = [end.strip() for end in _text(task["name"], "a task").split("->")]
        require(len(ends) == 2, f"The task {task['name']!r} is not of the form A->B.")
        source, target = (_text(task.get(k, end), "a task") for k, end in zip(("source", "target"), ends))
        _known((source, target), domains, f"domain in task {task['name']!r}:")
        tasks.append(Task(source, target, "->".join(ends)))
    _once([task.name for task in tasks], "tasks")
    return tuple(tasks)


def _subsets(given: Any, classes: tuple[str, ...] | None) -> tuple[Subset, ...]:
    subsets: list[Subset] = []
    for each in given if isinstance(given, list) else [given]:
        rule = {"all": True} if each == "all" else _mapping(each, "target")
        name, keys = _text(rule.get("name", ""), "a target's name"), rule.keys() - {"name"}
        if keys == {"all"}:
            subsets.append(Subset(name))
        elif keys == {"first"}:
            subsets.append(Subset(name, first=_whole(rule["first"], "first", 1)))
        elif keys == {"classes"}:
            chosen = _texts(rule["classes"], "target classes")
            _known(chosen, classes or chosen, "target class")
            subsets.append(Subset(name, classes=chosen))
        else:
            require(
                "count" in keys and keys <= {"count", "draw", "variants"},
                f"The target is {each!r}: write first, classes, count (with draw, variants) or all.",
            )
            count, start = _whole(rule["count"], "count", 1), _whole(rule.get("draw", 0), "draw", 0)
            n_variants = _whole(rule.get("variants", 1), "variants", 1)
            for draw in range(start, start + n_variants):
                variant = name if n_variants == 1 else f"{name or 'draw'} {draw}"
                subsets.append(Subset(variant, count=count, draw=draw))
    require(bool(subsets), "The list of targets is empty: leave it out for all classes.")
    _once([subset.name for subset in subsets], "names of targets")
    return tuple(subsets)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    require(isinstance(value, dict), f"{where} is {value!r}: write lines of name: value.")
    return {_text(key, f"a name in {where}"): each for key, each in value.items()}


def _texts(value: Any, where: str) -> tuple[str, ...]:
    require(isinstance(value, list) and bool(value), f"{where} is {value!r}: write a list of names.")
    _once([_text(one, where) for one in value], where)
    return tuple(value)


def _text(value: Any, where: str) -> str:
    require(isinstance(value, str), f"{where} is {value!r}: write text, in quotes if need be.")
    return str(value)


def _whole(value: Any, where: str, minimum: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= minimum
    require(whole, f"{where} is {value!r}: write a whole number from {minimum}.")
    return int(value)


def _once(names: Sequence[str], where: str) -> None:
    for name in names:
        require(names.count(name) == 1, f"{name!r} is given twice in {where}: leave one out.")


def _known(names: Iterable[str], choices: Iterable[str], what: str) -> None:
    for name in names:
        require(name in choices, f"Unknown {what} {name!r}: {did_you_mean(name, choices)}")
