"""After a run: some rows of both domains, opened again and as its model sees them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ba3us.data import Target
from ba3us.data.cache import Readable, open_images
from ba3us.data.images import ImageList
from ba3us.engine import opening
from ba3us.engine.model import Model
from ba3us.engine.samples import Arrays, Images
from ba3us.engine.spec import Spec
from ba3us.errors import require


class Rows(NamedTuple):
    """Some rows of a domain.

    Attributes
    ----------
    names : list of str
        The path of each, or its number.
    features : array [n, d]
        Adapted.
    classes : int array [n]
        Of the source, as labelled; of the target, as predicted.
    probabilities : array [n]
        Of the predicted class.
    total : int
        How many rows the domain has.
    """

    names: list[str]
    features: np.ndarray
    classes: np.ndarray
    probabilities: np.ndarray
    total: int


class Both(NamedTuple):
    """Rows of the source and of the target."""

    source: Rows
    target: Rows


def evenly(rows: int, most: int) -> np.ndarray:
    """At most so many row numbers, evenly spaced: files are often in the order of their classes."""
    return np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).round().astype(int)


def some_rows(model: Model, spec: Spec, sizes: tuple[int, int], most: int) -> Both:
    """At most `most` rows of each domain that a spec names; a sentence if they are not what they were.

    `sizes` are the rows that the domains had. Images are opened only as far as they are looked at.
    """
    require(spec.source is not None and spec.target is not None, "The run was given arrays, not files.")
    samples = model.blueprint.samples
    return (_arrays if isinstance(samples, Arrays) else _images)(model, spec, sizes, most)


def images_seen(model: Model, listed: ImageList, where: Spec, name: str, show: bool) -> tuple[Target, Readable]:
    """Images as a model of images takes them, on the device that `where` names."""
    samples, place, budget = model.blueprint.samples, opening.place(where), opening.gigabytes(where)
    assert isinstance(samples, Images)
    opened = open_images(listed, samples.side, cache_gb=budget, workers=where.workers, progress=show)
    model.module.to(place)
    return samples.domain(opened.pixels, name, model.front, place, budget), opened


def _arrays(model: Model, spec: Spec, sizes: tuple[int, int], most: int) -> Both:
    opened, samples = opening.open_spec(spec), model.blueprint.samples
    assert isinstance(opened, opening.OpenedArrays)
    assert isinstance(samples, Arrays)
    require(
        opened.rows == tuple(sizes) and opened.classes == model.blueprint.classes,
        f"The files have changed since the run: {opened.rows[0]} and {opened.rows[1]} rows, then {sizes[0]} "
        f"and {sizes[1]}, or other classes.",
    )
    kept = [evenly(size, most) for size in sizes]
    source = samples.domain(opened.source[kept[0]], "source")
    target = samples.domain(opened.target[kept[1]], "target")
    paths = opened.paths
    return Both(
        _seen(model, source, [f"row {row}" for row in kept[0]], sizes[0], opened.labels[kept[0]]),
        _seen(model, target, [paths[row] if paths else f"row {row}" for row in kept[1]], sizes[1]),
    )


def _images(model: Model, spec: Spec, sizes: tuple[int, int], most: int) -> Both:
    listed = opening.list_source(Path(str(spec.source)), spec)
    unlabelled = opening.list_images(str(spec.target), spec.root)
    domain, opened = images_seen(model, _part(listed, most), spec, "source", False)
    images = opened.images
    assert images.labels is not None
    assert images.class_names is not None
    number = {name: label for label, name in enumerate(model.blueprint.classes)}
    names = opening.class_texts(images.class_names)
    require(
        {names[label] for label in images.labels} <= number.keys(),
        f"The folders of {spec.source} have changed since the run: they have other classes.",
    )
    labels = np.array([number[names[label]] for label in images.labels])
    source = _seen(model, domain, images.paths, sizes[0], labels)
    domain, opened = images_seen(model, _part(unlabelled, most), spec, "target", False)
    return Both(source, _seen(model, domain, opened.images.paths, sizes[1]))


def _part(images: ImageList, most: int) -> ImageList:
    rows = evenly(len(images), most)
    labels = None if images.labels is None else images.labels[rows]
    return dataclasses.replace(images, paths=[images.paths[row] for row in rows], labels=labels)


def _seen(model: Model, domain: Target, names: list[str], total: int, labels: Any = None) -> Rows:
    features, predicted, probabilities = [], [], []
    for some, logits in model.outputs(domain):
        probability, label = logits.softmax(dim=1).max(dim=1)
        features.append(some.numpy())
        predicted.append(label.numpy())
        probabilities.append(probability.numpy())
    classes = np.concatenate(predicted) if labels is None else labels
    return Rows(names, np.concatenate(features), classes, np.concatenate(probabilities), total)
