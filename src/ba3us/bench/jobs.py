"""From a protocol to runs: a job is one method, one dataset and one seed; ``execute`` trains it."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
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
from ba3us.data.image_cache import open_images
from ba3us.data.images import ImageList
from ba3us.errors import UserError, did_you_mean, optional_import, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.base import Step
from ba3us.methods.options import MethodOptions
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

THREADS = 1  # of a run; sums depend on it in the last bit
IMAGE_FIELDS = (  # of a spec
    "backbone", "weights", "train", "views", "size", "device", "precision", "cache_gb",
)  # fmt: skip
Projection = Callable[[Model, Target, Target], pd.DataFrame]  # of source and target to the plane


@dataclass(frozen=True)
class ImageSettings:
    """How images become features: a spec without open choices, and a digest of the weights."""

    spec: Spec
    weights: str

    def to_dict(self) -> dict[str, Any]:
        """Everything that a result depends on, as JSON values."""
        names = ("backbone", "train", "views", "size", "ten_crop", "precision", "device")
        return {name: getattr(self.spec, name) for name in names} | {"weights": self.weights}


def image_settings(protocol: Protocol, requested: dict[str, Any]) -> ImageSettings:
    """Fill in what was not requested: by the protocol's backbone, and by what this machine can do."""
    spec = Spec(**{"method": "source-only", "backbone": protocol.backbone or OFFLINE, **requested})
    check_precision(spec)
    spec = replace(spec, train=depth(spec), views=view_count(spec), device=place(spec))
    return ImageSettings(spec, _weights_digest(spec))


def are_images(domains: Iterable[Domain], requested: dict[str, Any]) -> bool:
    """Whether all domains are images; refuse a mixture, and image settings for features."""
    kinds = {domain.file.images: domain for domain in domains}
    if len(kinds) > 1:
        raise UserError(
            f"Domain {kinds[True].name!r} ({kinds[True].file.path}) is images, {kinds[False].name!r} "
            f"({kinds[False].file.path}) features: make features of all (ba3us embed), or of none."
        )
    if requested and True not in kinds:
        first = next(iter(requested))
        raise UserError(f"`{first}` is for images, but the domains are feature files: leave it out.")
    return True in kinds


def open_pair(
    settings: ImageSettings, pair: Pair, workers: int | None = 1, progress: bool = False
) -> OpenedImages:
    """The chosen images of a task; one that can't be read is an error, because scores count all of them."""
    backbone, samples = copy.deepcopy(_backbone_of(settings))  # a run cuts it
    pixels = []
    for file, rows in ((pair.source, pair.source_rows), (pair.target, pair.target_rows)):
        images = _listed_images(file)
        chosen = ImageList(images.root, [images.paths[row] for row in rows])
        opened = open_images(
            chosen, samples.side, cache_gb=gigabytes(settings.spec), workers=workers, progress=progress
        )
        if opened.skipped:
            first = opened.skipped[0]
            raise UserError(
                f"{len(opened.skipped)} of {len(chosen)} images of {file.path} can't be read (the first, "
                f"{first.path}: {first.reason}): repair or remove them."
            )
        pixels.append(opened.pixels)
    classes = list(range(pair.num_classes))
    return OpenedImages(samples, pixels[0], pair.source_labels, pixels[1], classes, backbone)


def fill_caches(tasks: Iterable[tuple[ImageSettings, Pair]], progress: bool = False) -> None:
    """Decode images and run frozen parts once, on all cores, before many runs need them."""
    for settings, pair in tasks:
        _backbone_of(settings)  # missing or damaged weights are an error at once
        with suppress(UserError):  # an unreadable image is the reason why its runs fail
            opened = open_pair(settings, pair, None, progress)
            front = opened.samples.encoder(backbone=opened.backbone).front
            opened.domains(front, settings.spec, progress)


@lru_cache(maxsize=4)
def _listed_images(file: File) -> ImageList:
    """The images of a domain; a worker lists those of a task once, not for every run."""
    images, digest = image_list(file.path, file.root)
    _check_unchanged(file.path, digest == file.digest)
    return images


def _backbone_of(settings: ImageSettings) -> tuple[Backbone, ImageSamples]:
    names = ("backbone", "weights", "train", "size")  # which network it is, and how it is cut
    return _backbone(settings.weights, **{name: getattr(settings.spec, name) for name in names})


@lru_cache(maxsize=1)  # networks may be large
def _backbone(digest: str, **network: Any) -> tuple[Backbone, ImageSamples]:
    spec = Spec(**network)
    _check_unchanged(spec.weights, _weights_digest(spec) == digest)
    return backbone_of(spec)


def _weights_digest(spec: Spec) -> str:
    """A digest of the weights file, or the version of the library that the weights come from."""
    if spec.weights is None:
        return f"timm {optional_import('timm', 'vision').__version__}"
    require(Path(spec.weights).is_file(), f"There is no weights file {spec.weights}: check the path.")
    return digest_of(Path(spec.weights).read_bytes())


def _check_unchanged(path: Any, unchanged: bool) -> None:
    require(unchanged, f"{path} is not what it was when the benchmark began: start it again.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One run.

    Attributes
    ----------
    label : str
        Its row in tables.
    protocol, task, variant : str
        Which data it is for; the variant says which classes the target keeps.
    method, options, seed : str, dict, int
        What is trained, with every hyper-parameter.
    settings : str
        The origin of the hyper-parameters, for people.
    data : str
        The digest of the dataset.
    pair : Pair
        The files and chosen samples.
    published : str, optional
        The protocol whose published settings it has, as ``ba3us adapt --protocol`` takes it.
    images : ImageSettings, optional
        For images only.
    evaluate_every : int, optional
        Evaluate the target also every so many steps, not only where the method refreshes.
    key : str
        A digest of :attr:`spec`.
    on_progress : callable, optional
        Called, in the process that carries the job out, with the proportion of it that is done.
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
    images: ImageSettings | None = None
    evaluate_every: int | None = None
    key: str = ""
    on_progress: Callable[[float], None] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that the result depends on, as JSON values."""
        names = ("method", "options", "seed", "data", "published", "evaluate_every")
        spec = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.images is not None:
            spec["images"] = self.images.to_dict()
        versions = {"ba3us": __version__, "torch": torch.__version__, "numpy": np.__version__}
        return {**spec, "n_threads": THREADS, "versions": versions}


@dataclass(frozen=True)
class MethodRow:
    """A row of a table: its label, its method, and the options that make it this row."""

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


def method_rows(names: Sequence[str], label: str = "{method}") -> list[MethodRow]:
    """A row per method, called by its own name or a pattern of it."""
    unknown = re.findall(r"{.*?}|[{}]", label.replace("{method}", ""))
    require(not unknown, f"The label {label!r} has {unknown[:1]}: only {{method}} is replaced.")
    unique = len(names) == 1 or "{method}" in label
    require(unique, f"The label {label!r} is the same for {len(names)} methods: put {{method}} into it.")
    return [MethodRow(label.replace("{method}", name), name) for name in names]


def parse_methods(text: str, images: bool = False) -> list[str]:
    """Names from a comma-separated list; ``all`` is every method that takes such samples."""
    lacking = set() if images else {"pixels", "batch norm"}
    if text.strip() == "all":
        return [e.name for e in methods.entries() if not lacking & set(e.info.needs)]
    names = [methods.get(name).name for name in split_names(text)]
    for name in names:
        require(names.count(name) == 1, f"Method {name!r} is given twice: leave one of them out.")
        needs = methods.get(name).info.needs
        require(images or "pixels" not in needs, f"Method {name!r} needs pixels, not features.")
    require(bool(names), "No method is given: name some, or all.")
    return names


def split_names(text: str | None) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def restrict(protocol: Protocol, tasks: str | None, variants: str | None, rules: str | None) -> Protocol:
    """The protocol with only the tasks and variants named, and other selection rules."""
    by_task = {task.name: task for task in protocol.tasks}
    by_variant = {subset.name: subset for subset in protocol.targets}
    for text, known, what in ((tasks, by_task, "task"), (variants, by_variant, "variant")):
        for name in split_names(text):
            require(name in known, f"{protocol.name} has no {what} {name!r}: {did_you_mean(name, known)}")
    return replace(
        protocol,
        tasks=tuple(by_task[name] for name in dict.fromkeys(split_names(tasks))) or protocol.tasks,
        targets=tuple(by_variant[name] for name in dict.fromkeys(split_names(variants))) or protocol.targets,
        selection=tuple(dict.fromkeys(split_names(rules))) or protocol.selection,
    )


def jobs(
    protocol: Protocol,
    datasets: Sequence[Dataset],
    rows: Sequence[MethodRow],
    seeds: int,
    options: dict[str, Any],
    images: ImageSettings | None = None,
    evaluate_every: int | None = None,
) -> list[Job]:
    """All combinations of datasets, rows and seeds.

    An option is left out for methods that do not have it; ``etn.steps`` is for the method ``etn`` alone.
    """
    require(seeds >= 1, f"The number of seeds is {seeds}: it must be at least 1.")
    used_options = {row.method: _used_options(methods.get(row.method)) for row in rows}
    every = set().union(*used_options.values())
    for option in options:
        method, _, name = option.rpartition(".")
        choices = used_options.get(method, set()) if method else every
        require(
            name in choices,
            f"Option {option!r} belongs to none of the methods chosen: " + did_you_mean(name, choices or every),
        )
    jobs = []
    for data in datasets:
        for row in rows:
            entry = methods.get(row.method)
            config, settings, published = _method_options(protocol, entry, data.task, options | row.options)
            row_images = images
            if images is not None:
                require(  # a backbone's own classifier numbers its classes so: ImageNet's WordNet ids
                    not config.keep_classifier or list(data.classes) == sorted(data.classes),
                    f"{data.task} keeps the backbone's classifier, but its classes are not in alphabetical "
                    "order: name them so, or add `keep_classifier=False`.",
                )
                ten_crop = published is not None and _refreshes_from_views(entry, config)
                row_images = replace(images, spec=replace(images.spec, ten_crop=ten_crop))
            for seed in range(seeds):
                job = Job(
                    label=row.label,
                    protocol=protocol.name,
                    task=data.task,
                    variant=data.variant,
                    method=entry.name,
                    seed=seed,
                    options=asdict(config),
                    settings=settings,
                    data=data.digest,
                    pair=data.pair,
                    published=published,
                    images=row_images,
                    evaluate_every=None if entry.name == AUTO else evaluate_every,
                )
                jobs.append(replace(job, key=digest_of(json.dumps(job.spec, sort_keys=True))))
    return sorted(jobs, key=lambda job: job.seed)  # stable: first results of all tasks come early


def tuned_with_labels(protocol: Protocol, names: Sequence[str]) -> list[str]:
    """Methods whose published settings for one of the tasks were chosen by target labels."""
    tasks, tuned = {task.name for task in protocol.tasks}, []
    for name in dict.fromkeys(names):
        settings = methods.get(name).protocols.get(protocol.published or "")
        if settings is not None and settings.oracle and tasks & settings.tasks.keys():
            tuned.append(name)
    return tuned


def _method_options(
    protocol: Protocol, entry: Entry, task: str, given: dict[str, Any]
) -> tuple[MethodOptions, str, str | None]:
    """Every option of a method on a task, whose settings they are, and the protocol they are published for."""
    used, prefix = _used_options(entry), f"{entry.name}."
    changed = {
        **{option: value for option, value in protocol.options.items() if option in used},
        **protocol.method_options.get(entry.name, {}),
        **{option: value for option, value in given.items() if option in used},
        **{option.removeprefix(prefix): value for option, value in given.items() if option.startswith(prefix)},
    }
    published = protocol.published if protocol.published in entry.protocols else None
    where = task if published and task in TASKS[published] else None
    config = entry.options(protocol=published, task=where, **changed)
    return config, entry.settings_note(config, published, where), published


def _refreshes_from_views(entry: Entry, config: MethodOptions) -> bool:
    """Whether the method refreshes from several views of the target."""
    with torch.device("meta"):
        network = Network(nn.Identity(), 2, 2, entry.method.head(config), nn.Linear(2, 2))
        return entry.create(network, config).recipe().refresh.views


def _used_options(entry: Entry) -> set[str]:
    """The options that a method uses."""
    kind = entry.method.Options
    return {f.name for f in fields(kind)} - {*kind.unused}


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a run; target labels had no part in it.

    Attributes
    ----------
    history : DataFrame
        A row per step that was logged.
    evaluations : DataFrame
        A row per evaluation of the target: phase, step, candidate, and a column per label-free score.
    predictions : array
        Predicted classes, [evaluations, samples].
    probabilities : array
        Mean probabilities over the samples, [evaluations, classes].
    selected : dict
        By selection rule: the evaluation it chose.
    steps, seconds, cpu_seconds : int, float, float
        Of training.
    summary : dict
        The run's own verdict, classes and leaderboard.
    points : DataFrame, optional
        Samples of both domains in the plane, for drawings.
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


def execute(job: Job, projection: Projection | None = None) -> Outcome:
    """Carry a job out on one thread; with a `projection`, keep points of both domains."""
    spec, opened = open_job(job)
    start, cpu_start = time.perf_counter(), time.process_time()
    # `auto` trains several candidates: a callback would report the progress of each
    report = job.on_progress if job.method != AUTO else None
    run, target = train(spec, opened, callbacks=[] if report is None else [_ProgressReport(report)])
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
        points=None
        if projection is None
        else projection(run.model, opened.domains(run.model.front, spec, False).source, target),
    )


class _ProgressReport(Callback):
    """Reports which proportion of a run is done, every two seconds."""

    def __init__(self, on_progress: Callable[[float], None]) -> None:
        self.on_progress, self.last = on_progress, time.monotonic()

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """Report, if the last report is old enough."""
        if time.monotonic() - self.last >= 2.0:
            self.last = time.monotonic()
            done = trainer.recipe.before(step.phase) + step.number + 1
            self.on_progress(done / sum(phase.steps for phase in trainer.recipe.phases))


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


def open_job(job: Job) -> tuple[Spec, Opened]:
    """The spec of a job, and its samples."""
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
        settings = {name: getattr(job.images.spec, name) for name in (*IMAGE_FIELDS, "ten_crop")}
        return replace(spec, workers=1, **settings), open_pair(job.images, pair)
    source, target = pair.arrays or (read_samples(pair.source), read_samples(pair.target))
    x, xt = source[pair.source_rows], target[pair.target_rows]
    classes = list(range(pair.num_classes))
    return spec, OpenedArrays(ArraySamples(x.shape[1:]), x, pair.source_labels, xt, classes)


@lru_cache(maxsize=4)
def read_samples(file: File) -> np.ndarray:
    """Features of a file; a worker reads those of a task once, not for every run."""
    _check_unchanged(file.path, digest_of(file.path.read_bytes()) == file.digest)
    return read_features(file.path).features
