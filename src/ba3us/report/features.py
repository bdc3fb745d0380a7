"""How source and target lie in the adapted features: PCA and t-SNE of some rows of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ba3us.engine.again import Both, evenly, some_rows
from ba3us.engine.samples import Images
from ba3us.errors import UserError
from ba3us.paper.plane import MOST_POINTS, tsne
from ba3us.report.charts import LOOKS, cloud
from ba3us.report.parts import Charts, Part, Section, Table, Words
from ba3us.report.told import Told, percent

_FEWEST = 4  # rows that t-SNE needs
_QUICK, _QUICK_IMAGES = 300, 60  # rows in t-SNE, and images that are opened, of a quick page


def features_section(told: Told) -> Section:
    """Drawn if the samples can be opened again; else why not."""
    try:
        parts = _clouds(told)
    except (UserError, OSError) as error:
        parts = [
            Words(f"This part is left out, because the samples can't be opened again. {error}", aside=True)
        ]
    return Section("features", "Source and target in the adapted features", parts)


def _clouds(told: Told) -> list[Part]:
    run = told.run
    sizes = run.about["source_rows"], run.about["target_rows"]
    of_images = isinstance(run.model.blueprint.samples, Images)
    most = _QUICK_IMAGES if told.quick and of_images else MOST_POINTS
    both = some_rows(run.model, run.spec, sizes, most // 2)
    features = np.concatenate([rows.features for rows in both])
    heavy = np.argsort(-np.bincount(both.target.classes, minlength=len(told.classes)), kind="stable")[:LOOKS]
    names = [told.classes[c] for c in heavy]
    points = _points(told, both).assign(look=lambda p: p["class"].map({c: n for n, c in enumerate(heavy)}))
    points["look"] = points["look"].fillna(-1).astype(int)
    drawn = " and ".join(
        f"{len(rows.names):,} {name} rows" if len(rows.names) == rows.total
        else f"{len(rows.names):,} of {rows.total:,} {name} rows"
        for name, rows in zip(("source", "target"), both)
    )  # fmt: skip
    xy, explained = _pca(features)
    charts = [
        cloud(
            "PCA",
            f"{drawn}, along the two directions of most variance ({percent(explained.sum(), 0)} of all of it).",
            points.assign(x=xy[:, 0], y=xy[:, 1]),
            names,
            (f"first direction, {percent(explained[0], 0)}", f"second, {percent(explained[1], 0)}"),
        )
    ]
    if len(features) >= _FEWEST:
        few = evenly(len(features), _QUICK if told.quick else MOST_POINTS)
        with threadpool_limits(1):  # many threads wait for each other longer than they compute
            xy = tsne(features[few])
        part = drawn if len(few) == len(features) else f"{len(few)} of these rows"
        said = f"{part}. Rows that are alike lie together; distances between groups mean little."
        charts.append(cloud("t-SNE", said, points.iloc[few].assign(x=xy[:, 0], y=xy[:, 1]), names))
    words = (
        "Each mark is a row: squares are the source's, by their labels, round ones the target's, by what the "
        "model takes them for. Where the target's rows lie inside the source's groups, the model sees them "
        "alike; whether it is right is another matter."
    )
    choices = (("classes", "classes"), ("domains", "source and target"))
    more = [Words(f"The command “ba3us report {told.folder}” draws more rows.")] if told.quick else []
    return [Words(words), Charts(charts, choices), *more, _table(told, both)]


def _pca(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import PCA

    count = min(2, *features.shape)
    pca = PCA(count, random_state=0)
    xy = np.zeros((len(features), 2))
    xy[:, :count] = pca.fit_transform(features.astype(np.float64))
    explained = np.zeros(2)
    explained[:count] = np.nan_to_num(pca.explained_variance_ratio_)
    return xy, explained


def _points(told: Told, both: Both) -> pd.DataFrame:
    """One row per mark: domain, class, and what is said of it."""
    true = _true(told)
    rows: list[dict[str, Any]] = [
        {"domain": "source", "class": c, "text": f"source, {name}\nlabelled {told.classes[c]}"}
        for name, c in zip(both.source.names, both.source.classes)
    ]
    for name, c, p in zip(both.target.names, both.target.classes, both.target.probabilities):
        label = f"\nlabelled {true[name]}" if name in true else ""
        said = f"target, {name}\ntaken for {told.classes[c]} ({percent(p)}){label}"
        rows.append({"domain": "target", "class": c, "text": said})
    return pd.DataFrame(rows)


def _true(told: Told) -> dict[str, str]:
    """The label of each row of the target by its name, where labels were given."""
    if told.labels is None:
        return {}
    names = told.paths or [f"row {row}" for row in range(len(told.labels))]
    return {name: told.classes[c] for name, c in zip(names, told.labels)}


def _table(told: Told, both: Both) -> Table:
    counts = [np.bincount(rows.classes, minlength=len(told.classes)) for rows in both]
    sums = np.bincount(both.target.classes, both.target.probabilities, minlength=len(told.classes))
    means = np.divide(sums, counts[1], out=np.full(len(sums), np.nan), where=counts[1] > 0)
    rows = [
        [told.classes[c], f"{counts[0][c]:,}", f"{counts[1][c]:,}", percent(means[c])]
        for c in np.argsort(-counts[1], kind="stable")
    ]
    columns = ["class", "source rows", "target rows taken for it", "mean probability"]
    return Table("Rows in the drawings, by class", columns, rows, [1, 2, 3], closed=True)
