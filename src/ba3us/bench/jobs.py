"""The one place where the benchmark meets training."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from ba3us import __version__, methods
from ba3us.adapt import train
from ba3us.bench.domains import Dataset, Domain, File, Pair, digest_of, image_list
from ba3us.bench.protocol import Protocol
from ba3us.data import Target
from ba3us.data.files import read_features
from ba3us.data.image_cache import CachedPixels, open_images
from ba3us.data.images import ImageList
from ba3us.errors import UserError, did_you_mean, optional_import, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.base import MethodOptions, Step
from ba3us.methods.registry import TASKS, Entry
from ba3us.nn import Network
from ba3us.nn.backbones import OFFLINE, Backbone
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.build import Model
from ba3us.run.images import ImageSamples, OpenedImages, backbone_of
from ba3us.run.samples import Opened
from ba3us.run.spec import Spec, check_precision, depth, gigabytes, place, view_count
from ba3us.training import Callback, SelectionRule, Trainer
from ba3us.training.evaluation import rules_for_records

# --- images -----------------------------------------------------------------------------------------------
# Images of a benchmark: what they are seen with, and how those of a task are opened.


IMAGE_FIELDS = (  # of a spec
    "backbone", "weights", "train", "views", "size", "device", "precision", "cache_gb",
)  # fmt: skip
_DECIDE = ("backbone", "weights", "train", "size")  # what decides which network it is, and how it is cut


@dataclass(frozen=True)
class Sight:
    """What images are seen with: a spec in which all is decided, and what tells its weights from others."""

    spec: Spec
    weights: str

    @property
    def described(self) -> dict[str, Any]:
        """All that a result depends on, as JSON values."""
        names = ("backbone", "train", "views", "size", "ten_crop", "precision", "device")
        return {name: getattr(self.spec, name) for name in names} | {"weights": self.weights}

    def with_views(self, ten_crop: bool) -> Sight:
        """The same for a method that refreshes from ten crops, or does not."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, ten_crop=ten_crop))


def sight(protocol: Protocol, asked: dict[str, Any]) -> Sight:
    """Decide what was left open: the protocol's backbone, and what this machine can do."""
    spec = Spec(**{"method": "source-only", "backbone": protocol.backbone or OFFLINE, **asked})
    check_precision(spec)
    spec = dataclasses.replace(spec, train=depth(spec), views=view_count(spec), device=place(spec))
    return Sight(spec, _weights(spec))


def check_kind(domains: Iterable[Domain], asked: dict[str, Any]) -> bool:
    """Whether all domains are images; refuse a mixture, and what was asked of images if they are none."""
    kinds = {domain.file.images: domain for domain in domains}
    if len(kinds) > 1:
        raise UserError(
            f"Domain {kinds[True].name!r} ({kinds[True].file.path}) is images, {kinds[False].name!r} "
            f"({kinds[False].file.path}) features: make features of all (ba3us embed), or of none."
        )
    if asked and True not in kinds:
        first = next(iter(asked))
        raise UserError(f"`{first}` is for images, but the domains are feature files: leave it out.")
    return True in kinds


def open_pair(seen: Sight, pair: Pair, workers: int | None = 1, show: bool = False) -> OpenedImages:
    """The chosen images of a task; one that can't be read is an error, because scores count all of them."""
    backbone, samples = copy.deepcopy(_seen_with(seen))  # a run takes it apart
    how: dict[str, Any] = {"cache_gb": gigabytes(seen.spec), "workers": workers, "progress": show}
    source, target = (
        _readable(file, rows, samples.side, how)
        for file, rows in ((pair.source, pair.source_rows), (pair.target, pair.target_rows))
    )
    classes = list(range(pair.num_classes))
    return OpenedImages(samples, source, pair.source_labels, target, classes, backbone)


def warm(tasks: Iterable[tuple[Sight, Pair]], show: bool = False) -> None:
    """Decode, and run what stays frozen, once and on all cores, before many runs ask for it."""
    for seen, pair in tasks:
        _seen_with(seen)  # weights that can't be had are an error at once
        with suppress(UserError):  # an unreadable image is a reason in the rows of its runs
            opened = open_pair(seen, pair, None, show)
            front = opened.samples.encoder(backbone=opened.backbone).front
            opened.domains(front, seen.spec, show)


def _readable(file: File, rows: np.ndarray, side: int, how: dict[str, Any]) -> CachedPixels:
    listed = _listed(file)
    chosen = ImageList(listed.root, [listed.paths[row] for row in rows])
    opened = open_images(chosen, side, **how)
    if opened.skipped:
        first = opened.skipped[0]
        raise UserError(
            f"{len(opened.skipped)} of {len(chosen)} images of {file.path} can't be read (the first, "
            f"{first.path}: {first.reason}): mend or remove them."
        )
    return opened.pixels


@lru_cache(maxsize=4)
def _listed(file: File) -> ImageList:
    """The images of a domain; a worker lists those of a task once, not for every run."""
    listed, digest = image_list(file.path, file.root)
    check_same(file.path, digest == file.digest)
    return listed


def _seen_with(seen: Sight) -> tuple[Backbone, ImageSamples]:
    return _backbone(seen.weights, *(getattr(seen.spec, name) for name in _DECIDE))


@lru_cache(maxsize=1)  # networks may be large
def _backbone(known: str, *decided: Any) -> tuple[Backbone, ImageSamples]:
    spec = Spec(**dict(zip(_DECIDE, decided)))
    check_same(spec.weights, _weights(spec) == known)
    return backbone_of(spec)


def _weights(spec: Spec) -> str:
    """A digest of the weights file, or what names the weights that come from elsewhere."""
    if spec.weights is None:
        return f"timm {optional_import('timm', 'vision').__version__}"
    require(Path(spec.weights).is_file(), f"There is no weights file {spec.weights}: check the path.")
    return digest_of(Path(spec.weights).read_bytes())


def check_same(path: Any, same: bool) -> None:
    """Refuse what has changed since the keys of the runs were made."""
    require(same, f"{path} is not what it was when the benchmark began: start it again.")


# --- jobs -------------------------------------------------------------------------------------------------
# From a protocol to the runs it takes: every job is one method, one dataset, one seed.


THREADS = 1  # of a run; sums depend on it in the last bit


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One run. `label` is its row in tables; `settings` says whose its options are.

    `published` names the protocol whose published settings it has, as ``ba3us adapt --protocol`` does.

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
    published: str | None = None
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
        optional = {name: getattr(self, name) for name in ("published", "evaluate_every")}
        given = {name: value for name, value in optional.items() if value is not None}
        return {**named, **seen, **given, "n_threads": THREADS, "versions": versions}


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
                seen = images.with_views(published is not None and _from_views(entry, config))
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
                    published=published,
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
) -> tuple[MethodOptions, str, str | None]:
    """Every option of a method on a task, whose settings they are, and the protocol they are published for."""
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
    return config, entry.settings_note(config, published, where), published


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
        "them so, or add `keep_classifier=False`.",
    )


def _known(entry: Entry) -> set[str]:
    """The options that a method makes use of."""
    kind = entry.method.Options
    return {f.name for f in fields(kind)} - {*kind.unused}


# --- execute ----------------------------------------------------------------------------------------------
# The one place where the benchmark meets training.


_OFTEN = 2.0  # seconds between two words on how far a run has come
Place = Callable[[Model, Target, Target], pd.DataFrame]  # of source and target


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run leaves behind; no target label had a part in it.

    `evaluations` has a row per look at the target (phase, step, candidate, and a column per label-free score),
    `predictions` the classes it gave then, [evaluations, rows], and `probabilities` their means over the rows,
    [evaluations, classes]; `selected` is the row each rule chose; `summary` is the run's own: verdict,
    classes, leaderboard. `points` are rows of both domains in the plane, where somebody wants to draw them.
    """

    history: pd.DataFrame
    evaluations: pd.DataFrame
    predictions: np.ndarray
    probabilities: np.ndarray
    selected: dict[str, int]
    steps: int
    seconds: float
    cpu_seconds: float
    summary: dict[str, Any]
    points: pd.DataFrame | None = None


def execute(job: Job, place: Place | None = None) -> Outcome:
    """Carry a job out, on one thread; `place` puts both domains into the plane as the model sees them."""
    spec, opened = opened_job(job)
    start, cpu_start = time.perf_counter(), time.process_time()
    # of the automatic choice only parts could be told
    callbacks = [_Telling(job.tell)] if job.tell is not None and job.method != AUTO else []
    run, target = train(spec, opened, callbacks=callbacks)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    table = pd.DataFrame(
        [{"phase": e.phase, "step": e.step, "candidate": e.candidate, **e.scores} for e in run.evaluations]
    )
    selected = {}
    for rule in _prepared_rules(job.data, opened, spec):
        scores = pd.Series([rule.score_recorded(e) for e in run.evaluations])
        selected[rule.name] = int(scores.where(table["candidate"]).argmax())
        if rule.recorded is None:
            table[rule.name] = scores
    return Outcome(
        history=run.history,
        evaluations=table,
        predictions=np.stack([e.predictions for e in run.evaluations]),
        probabilities=np.stack([e.mean_probabilities for e in run.evaluations]).astype(np.float32),
        selected=selected,
        steps=run.about["steps"],
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        summary={name: run.summary().get(name) for name in ("verdict", "classes", "leaderboard")},
        points=place(run.model, opened.domains(run.model.front, spec, False).source, target) if place else None,
    )


class _Telling(Callback):
    """Passes on how far a run has come, now and then."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell, self.told = tell, time.monotonic()

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """After an update."""
        if time.monotonic() - self.told >= _OFTEN:
            done, every = step.number + 1, sum(phase.steps for phase in trainer.recipe.phases)
            self.told = time.monotonic()
            self.tell((trainer.recipe.before(step.phase) + done) / every)


_prepared: dict[tuple[str, bool], list[SelectionRule]] = {}  # of the last target: runs of a task follow on


def _prepared_rules(data: str, opened: Opened, spec: Spec) -> list[SelectionRule]:
    """The rules that apply to these samples, ready to score; in the units of the network."""
    if opened.samples.has_pixels:
        return [rule for rule in rules_for_records().values() if rule.prepare is None]
    key = data, bool(opened.samples_for(spec).is_standardized)
    if key not in _prepared:
        domains = opened.domains(None, spec, False)
        _prepared.clear()
        _prepared[key] = [rule.prepared(*domains, key[1]) for rule in rules_for_records().values()]
    return _prepared[key]


def opened_job(job: Job) -> tuple[Spec, Opened]:
    """What a job asks of the engine, and its samples."""
    pair = job.pair
    spec = Spec(
        method=job.method,
        method_params=job.options,
        protocol=job.published,
        seed=job.seed,
        n_threads=THREADS,
        evaluate_every=job.evaluate_every,
    )
    if job.images is not None:
        seen = {name: getattr(job.images.spec, name) for name in (*IMAGE_FIELDS, "ten_crop")}
        return dataclasses.replace(spec, workers=1, **seen), open_pair(job.images, pair)
    source, target = pair.shipped or (samples(pair.source), samples(pair.target))
    x, xt = source[pair.source_rows], target[pair.target_rows]
    classes = list(range(pair.num_classes))
    return spec, OpenedArrays(ArraySamples(x.shape[1:]), x, pair.source_labels, xt, classes)


@lru_cache(maxsize=4)
def samples(file: File) -> np.ndarray:
    """Features of a file; a worker reads those of a task once, not for every run."""
    check_same(file.path, digest_of(file.path.read_bytes()) == file.digest)
    return read_features(file.path).features
