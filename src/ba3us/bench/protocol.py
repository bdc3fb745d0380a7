"""A protocol: which domains there are, which classes a target keeps, and which tasks to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ba3us import methods
from ba3us.bench import paper
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.published import TASKS

SHIPPED = Path(str(files("ba3us.bench") / "protocols"))


@dataclass(frozen=True)
class Task:
    """Adapt from one domain to another; called ``A->B`` unless the protocol names it otherwise."""

    source: str
    target: str
    name: str


@dataclass(frozen=True)
class Subset:
    """Which classes a target keeps: the alphabetically `first`, those named, `count` drawn by a seed, or all."""

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
        By name: where a feature file (.npz), image folder or list file may lie; the first that is there counts.
    tasks : tuple of Task
        Which source goes with which target.
    folder : Path
        Where paths start if no root is given.
    classes : tuple of str, optional
        The source's classes; by default all of its file's.
    rename : dict
        By domain: other names for some of its classes, so that domains agree.
    targets : tuple of Subset
        Which classes a target keeps; several make a study over several targets.
    backbone : str, optional
        What images are to be seen with.
    published, paper : str, optional
        Whose published settings to take (``office31``), and whose printed numbers to show beside ours.
    options, method_options : dict
        Hyper-parameters for all methods that have them, and for single methods.
    seeds : int
        How many, unless told otherwise.
    selection : tuple of str
        Rules that choose a checkpoint; the first is the one that tables go by.
    expected : dict
        By domain: how many samples there should be, in all or by class.
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
        known = str(named) in shipped()
        require(known, f"There is no protocol {str(named)!r}, neither file nor name: {_near(named)}")
        path = SHIPPED / f"{named}.yaml"
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}.") from error
    return _Reader(path).protocol(content)


def _near(named: str | Path) -> str:
    return did_you_mean(str(named), shipped())


class _Loader(yaml.SafeLoader):
    """YAML as it is, except that a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} is given twice")
        return super().construct_mapping(node, deep)


_KEYS = {f.name for f in fields(Protocol)} - {"folder", "targets"} | {"target"}
_RULES = ({"first"}, {"classes"}, {"count", "draw", "variants"}, {"all"})


@dataclass
class _Reader:
    """Turns the content of a YAML file into a protocol, strictly."""

    path: Path

    def protocol(self, content: Any) -> Protocol:
        given = self._mapping(content, "the file")
        for key in given:
            self._require(key in _KEYS, f"has an unknown key {key!r}: {did_you_mean(key, _KEYS)}")
        for key in ("domains", "tasks"):
            self._require(bool(given.get(key)), f"has no {key}: name at least one.")
        domains = {
            name: self._texts([found] if isinstance(found, str) else found, f"domain {name!r}")
            for name, found in self._mapping(given["domains"], "domains").items()
        }
        made: dict[str, Any] = {key: self._text(given[key], key) for key in ("name", "title") if key in given}
        made = {"name": self.path.stem, "title": made.get("name", self.path.stem)} | made
        for key, known in (("published", list(TASKS)), ("paper", paper.protocols()), ("backbone", None)):
            if (value := given.get(key)) is not None:
                self._text(value, key)
                self._require(
                    known is None or value in known,
                    f"has {key} {value!r}: {did_you_mean(value, known or ())}",
                )
                made[key] = value
        if given.get("classes") is not None:
            made["classes"] = self._texts(given["classes"], "classes")
        made["rename"] = {d: self._renamed(d, v) for d, v in self._by_domain(given, "rename", domains).items()}
        made["expected"] = {
            d: self._counts(d, v) for d, v in self._by_domain(given, "expected", domains).items()
        }
        made["selection"] = self._texts(given.get("selection", ["entropy"]), "selection")
        made["seeds"] = self._whole(given.get("seeds", 3), "seeds", 1)
        made["options"] = self._options(given.get("options"))
        own = self._mapping(given.get("method_options") or {}, "method_options")
        made["method_options"] = {name: self._own(name, options) for name, options in own.items()}
        return Protocol(
            **made,
            domains=domains,
            tasks=self._tasks(given["tasks"], domains),
            targets=self._subsets(given.get("target", "all"), made.get("classes")),
            folder=Path() if self.path.parent == SHIPPED else self.path.parent,
        )

    def _tasks(self, given: Any, domains: dict[str, Any]) -> tuple[Task, ...]:
        if given == "all":
            return tuple(Task(a, b, f"{a}->{b}") for a, b in permutations(domains, 2))
        self._require(isinstance(given, list), f"has tasks {given!r}: write a list of A->B, or all.")
        tasks = tuple(self._task(one, domains) for one in given)
        self._once([task.name for task in tasks], "task")
        return tasks

    def _task(self, given: Any, domains: dict[str, Any]) -> Task:
        named = given if isinstance(given, dict) else {"name": given}
        self._require(
            set(named) in ({"name"}, {"name", "source", "target"}),
            f"has the task {given!r}: write A->B, or name, source and target.",
        )
        name = self._text(named["name"], "a task")
        parts = [part.strip() for part in name.split("->")]
        self._require(len(parts) == 2, f"has the task {name!r}, not of the form A->B.")
        source, target = named.get("source", parts[0]), named.get("target", parts[1])
        for domain in (source, target):
            self._require(
                domain in domains, f"has task {name!r} with {domain!r}: {did_you_mean(str(domain), domains)}"
            )
        return Task(source, target, "->".join(parts))

    def _subsets(self, given: Any, classes: tuple[str, ...] | None) -> tuple[Subset, ...]:
        rules = given if isinstance(given, list) else [given]
        made = [subset for rule in rules for subset in self._rule(rule, classes, several=len(rules) > 1)]
        self._require(bool(made), "has no target: leave it out for all classes.")
        self._once([subset.name for subset in made], "target")
        return tuple(made)

    def _rule(self, rule: Any, classes: tuple[str, ...] | None, several: bool) -> list[Subset]:
        rule = {"all": True} if rule == "all" else self._mapping(rule, "target")
        keys = set(rule) - {"name"}
        fits = any(keys and keys <= allowed for allowed in _RULES) and ("count" in keys) == ("count" in rule)
        fits = fits and (not keys & {"draw", "variants"} or "count" in keys)
        self._require(
            fits, f"has the target {rule!r}: write first, classes, count (with draw, variants) or all."
        )
        name = self._text(rule.get("name", ""), "a target's name")
        self._require(
            not several or bool(name), f"has a target without a name ({rule!r}): name each of several."
        )
        if "first" in keys:
            return [Subset(name, first=self._whole(rule["first"], "first", 1))]
        if "classes" in keys:
            chosen = self._texts(rule["classes"], "target classes")
            for one in chosen if classes else ():
                self._require(one in classes, f"has target class {one!r}: {did_you_mean(one, classes)}")  # type: ignore[operator, arg-type]
            return [Subset(name, classes=chosen)]
        if "count" in keys:
            count = self._whole(rule["count"], "count", 1)
            seed, many = (
                self._whole(rule.get("draw", 0), "draw", 0),
                self._whole(rule.get("variants", 1), "variants", 1),
            )
            names = [f"{name or 'draw'} {seed + i}" if many > 1 else name for i in range(many)]
            return [Subset(each, count=count, draw=seed + i) for i, each in enumerate(names)]
        return [Subset(name)]

    def _options(self, given: Any) -> dict[str, Any]:
        known = {f.name for entry in methods.entries() for f in fields(entry.method.Config)}
        options = self._mapping(given or {}, "options")
        for name in options:
            self._require(name in known, f"has an unknown option {name!r}: {did_you_mean(name, known)}")
        return options

    def _own(self, name: str, given: Any) -> dict[str, Any]:
        options = self._mapping(given or {}, f"method_options of {name}")
        try:
            methods.get(name).config(**options)
        except UserError as error:
            raise UserError(f"{self.path}, method_options of {name!r}: {error}") from error
        return options

    def _by_domain(self, given: dict[str, Any], key: str, domains: dict[str, Any]) -> dict[str, Any]:
        found = self._mapping(given.get(key) or {}, key)
        for name in found:
            self._require(name in domains, f"has {key} of {name!r}: {did_you_mean(name, domains)}")
        return found

    def _renamed(self, domain: str, given: Any) -> dict[str, str]:
        pairs = self._mapping(given, f"rename of {domain}")
        self._texts(list(pairs.values()), f"rename of {domain}")
        return pairs

    def _counts(self, domain: str, given: Any) -> int | dict[str, int]:
        where = f"expected of {domain}"
        if not isinstance(given, dict):
            return self._whole(given, where, 1)
        return {name: self._whole(n, f"{where}, {name}", 0) for name, n in self._mapping(given, where).items()}

    def _mapping(self, value: Any, where: str) -> dict[str, Any]:
        self._require(isinstance(value, dict), f"has {value!r} for {where}: write name: value lines.")
        for key in value:
            self._text(key, f"a name in {where}")
        return dict(value)

    def _texts(self, value: Any, where: str) -> tuple[str, ...]:
        self._require(
            isinstance(value, list) and bool(value), f"has {value!r} for {where}: write a list of names."
        )
        self._once([self._text(one, where) for one in value], where)
        return tuple(value)

    def _text(self, value: Any, where: str) -> str:
        self._require(isinstance(value, str), f"has {value!r} for {where}: write text, in quotes if need be.")
        return str(value)

    def _whole(self, value: Any, where: str, least: int) -> int:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        self._require(whole, f"has {value!r} for {where}: write a whole number from {least}.")
        return int(value)

    def _once(self, names: Sequence[str], where: str) -> None:
        for name in names:
            self._require(names.count(name) == 1, f"has {name!r} twice in {where}: leave one out.")

    def _require(self, holds: bool, words: str) -> None:
        require(holds, f"{self.path} {words}")
