"""A spec: a run as data. It reads and writes YAML; the command line and the estimator fill one in."""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import torch
import yaml

from ba3us import methods
from ba3us.data.machine import DEFAULT_CACHE_GB
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.options import MethodOptions
from ba3us.training.distributed import check_accelerator
from ba3us.training.monitoring import ON_COLLAPSE, ON_NAN

FORMAT = "ba3us spec 1"
PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}  # names of Fabric
_PATHS = ("source", "target", "labels", "root", "classes", "weights")
_ONLY_FOR = {  # fields that only one kind of samples uses
    "images": (
        "weights", "train", "views", "size", "ten_crop", "root", "classes", "compile", "cache_gb", "workers",
    ),
    "arrays": ("labels", "standardize"),
}  # fmt: skip
_RANGES = {
    "seed": (0, 2**62), "n_threads": (1, None), "evaluate_every": (1, None), "views": (0, None),
    "size": (8, 4096), "workers": (1, None), "cache_gb": (0, None),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A run as data. The method, the data and the machine decide what is left out.

    Attributes
    ----------
    source, target : str
        Feature files (``.npz``, ``.npy``), or folders or list files of images. None: arrays are passed instead.
    labels : str
        Labels of a source that is a bare ``.npy`` array.
    root, classes : str
        For list files: the folder that their paths start from, and a file of class names, one per line.
    method, method_params : str, dict
        A registered name, and hyper-parameters in place of the method's defaults; ``auto`` chooses.
    protocol, task : str
        Use the settings published for a dataset (``office31``) and one of its tasks (``A->W``).
    selection : str or callable
        The evaluation whose weights are used: a rule of :mod:`ba3us.training.evaluation`, or a function of
        the target's outputs.
    evaluate_every : int
        Also evaluate every so many steps of a named method, for finer curves and more checkpoints to select
        from. None: only where the method refreshes.
    standardize : bool
        Standardise features by the source's columns, within the model. None: if they need it.
    backbone, weights : str
        The network that turns an image into a vector, and its weights; see
        :func:`ba3us.nn.backbones.create_backbone`. For arrays that are not vectors: one of
        :data:`ba3us.nn.SMALL`.
    train : str
        How much of the backbone is trained: ``head``, ``tail``, ``all`` or the stage to begin with. None:
        ``head`` on a CPU, ``tail`` on a GPU.
    views : int
        Augmented views per image that are cached where a part is frozen; 0: the centre only. None: 0 with
        ``head``, else 4.
    size : int
        Side of the crops in pixels. None: the backbone's.
    ten_crop : bool
        Offer ten crops to methods that refresh from them.
    seed, n_threads : int
        Results repeat if both are the same.
    on_nan : str
        If a loss becomes NaN or infinite: ``stop``, or ``retry`` from the last good state at half the learning
        rate.
    on_collapse : str
        If predictions collapse to few classes: ``continue``, or ``stop`` with the best evaluation so far.
    correct_prior : bool
        Correct the classifier's prior by the target's class proportions; see :mod:`ba3us.auto.guard`.
    device, devices, nodes, precision, compile
        Where and how to compute; see :mod:`ba3us.training.distributed`.
    cache_gb, workers
        Limit of the image cache in 10⁹ bytes (10), and the number of threads that decode images.
    """

    source: str | None = None
    target: str | None = None
    labels: str | None = None
    root: str | None = None
    classes: str | None = None
    method: str = AUTO
    method_params: dict[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    task: str | None = None
    selection: str | Callable[..., float] = "entropy"
    evaluate_every: int | None = None
    standardize: bool | None = None
    backbone: str | None = None
    weights: str | None = None
    train: str | None = None
    views: int | None = None
    size: int | None = None
    ten_crop: bool = False
    seed: int = 0
    n_threads: int | None = None
    device: str | None = None
    devices: int | str | None = None
    nodes: int | None = None
    precision: str = "float32"
    on_nan: str = "stop"
    on_collapse: str = "continue"
    correct_prior: bool = False
    compile: bool = False
    cache_gb: float | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            _check_type(name, getattr(self, name), kind)
        for name, (low, high) in _RANGES.items():
            if (value := getattr(self, name)) is not None:
                require(value >= low, f"`{name}` is {value}: it must be {low} or more.")
                require(high is None or value <= high, f"`{name}` is {value}: it must be {high} at the most.")
        if self.device is not None:
            check_accelerator(self.device)
        for name, choices in (("precision", PRECISIONS), ("on_nan", ON_NAN), ("on_collapse", ON_COLLAPSE)):
            value = getattr(self, name)
            require(value in choices, f"Unknown `{name}` {value!r}: choose one of {', '.join(choices)}.")
        require(
            self.task is None or self.protocol is not None,
            f"The task {self.task!r} is given without a protocol: add a `protocol`, such as office31.",
        )

    def source_only(self) -> Spec:
        """The source-only method that this spec is compared with.

        It shares the data, the backbone, the device, the standardisation, the seed, and the method options that
        source-only has too, with as many steps. It does not share what depends on target predictions
        (selection, extra evaluations, stopping on collapse, prior correction) nor a protocol's options.
        """
        config, baseline = self.method_options(), methods.get("source-only")
        options = {f.name: getattr(config, f.name) for f in dataclasses.fields(baseline.method.Options)}
        options |= {"steps": config.steps + config.warmup_steps, "warmup_steps": 0}
        return dataclasses.replace(
            self,
            method=baseline.name,
            method_params=options,
            protocol=None,
            task=None,
            selection="last",
            evaluate_every=None,
            on_collapse="continue",
            correct_prior=False,
            compile=False,
        )

    def method_options(self) -> MethodOptions:
        """Every hyper-parameter of the method."""
        return methods.get(self.method).options(self.protocol, self.task, **self.method_params)

    @property
    def kind(self) -> str:
        """Kind of the samples, ``images`` or ``arrays``; an error if a field is for the other kind."""
        require(
            self.source is not None and self.target is not None,
            "A source or a target is missing: give a feature file, or a folder or list of images, for each.",
        )
        images = is_images(str(self.source)) and is_images(str(self.target))
        samples = f"{'images' if images else 'features'} such as {self.source}"
        for name in _ONLY_FOR["arrays" if images else "images"]:
            value = getattr(self, name)
            require(value is None or value is False, f"`{name}` is not for {samples}: leave it out.")
        return "images" if images else "arrays"

    def to_yaml(self) -> str:
        """Write YAML without the fields that have their defaults."""
        require(isinstance(self.selection, str), "A selection that is a function can't be written to a file.")
        defaults = vars(Spec())
        fields = {name: value for name, value in vars(self).items() if value != defaults[name]}
        fields |= {name: os.path.abspath(fields[name]) for name in _PATHS if name in fields}
        return yaml.safe_dump({"format": FORMAT, **fields}, sort_keys=False, allow_unicode=True)

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """Read a YAML file, such as a run's ``spec.yaml``; paths start at its folder."""
        path = Path(path)
        require(path.is_file(), f"There is no spec at {path}: check the path.")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid YAML ({str(error).splitlines()[0]}): fix it.") from error
        require(
            isinstance(content, dict) and content.pop("format", FORMAT) == FORMAT,
            f"{path} is not a spec of ba3us, or of another version: begin it with 'format: {FORMAT}'.",
        )
        fields = [f.name for f in dataclasses.fields(cls)]
        for name in content:
            require(name in fields, f"{path} has an unknown key {name!r}: {did_you_mean(str(name), fields)}")
        for name in _PATHS:
            if isinstance(content.get(name), str):
                content[name] = os.path.normpath(path.parent / content[name])
        try:
            return cls(**content)
        except UserError as error:
            raise UserError(f"In {path}: {str(error).replace('`', '')}") from error


def place(spec: Spec) -> str:
    """The device: the spec's, or a GPU if there is one."""
    if spec.device in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(spec.device)


def depth(spec: Spec) -> str:
    """How much of a backbone is trained; by default the tail on a GPU, the head elsewhere."""
    return spec.train or ("tail" if place(spec) == "cuda" and spec.method != AUTO else "head")


def view_count(spec: Spec) -> int:
    """Augmented views per image that are cached; by default 4, or none if only the head is trained."""
    return (0 if depth(spec) == "head" else 4) if spec.views is None else spec.views


def gigabytes(spec: Spec) -> float:
    """Limit of the caches in 10⁹ bytes."""
    return DEFAULT_CACHE_GB if spec.cache_gb is None else spec.cache_gb


def check_precision(spec: Spec) -> None:
    """Refuse to train in a precision that the device lacks."""
    require(
        place(spec) != "cpu" or spec.precision != "float16",
        "A CPU can't train in float16: choose bfloat16 or float32.",
    )


def check_auto(spec: Spec) -> None:
    """Refuse to train a backbone with the automatic choice, which adapts only heads."""
    require(
        spec.method != AUTO or depth(spec) == "head",
        f"`train` is {spec.train!r}, but the automatic choice adapts the head: name a `method` as well.",
    )


def is_images(path: str | Path) -> bool:
    """Whether a path is that of images (a folder or a list file) rather than of a feature file."""
    return Path(path).is_dir() or Path(path).suffix not in (".npz", ".npy")


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise an error unless `value` is of the type that the field declares."""
    number = not isinstance(value, bool)
    mapping = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    types: dict[Any, tuple[bool, str]] = {
        str: (isinstance(value, str), "text"),
        bool: (isinstance(value, bool), "true or false"),
        int: (number and isinstance(value, numbers.Integral), "a whole number"),
        float: (number and isinstance(value, numbers.Real), "a number"),
        dict[str, Any]: (mapping, "names with values, such as {beta: 1.0}"),
        Callable[..., float]: (callable(value), "a function"),
        type(None): (value is None, ""),
    }
    declared = [types[each] for each in (get_args(kind) if isinstance(kind, UnionType) else (kind,))]
    types_in_words = " or ".join(words for _, words in declared if words)
    require(any(fits for fits, _ in declared), f"`{name}` is {value!r}: it must be {types_in_words}.")
