"""Both domains in the plane (figure 5): t-SNE of what a trained network sees of some of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ba3us.bench.execute import Outcome, execute
from ba3us.bench.jobs import Job
from ba3us.data import Target
from ba3us.data.part import Part
from ba3us.engine.again import evenly
from ba3us.engine.model import Model
from ba3us.errors import require

MOST_POINTS = 2000  # in one t-SNE panel


def placed(job: Job) -> Outcome:
    """Carry a job out as a benchmark does, and keep where its samples lie."""
    return execute(job, in_plane)


def in_plane(model: Model, source: Target, target: Target) -> pd.DataFrame:
    """One t-SNE of both domains in the model's features: columns x, y, domain and row.

    At most :data:`MOST_POINTS` in all: up to half of them from each domain, evenly spaced over its rows. Only
    these go through the network.
    """
    kept = [evenly(len(domain), MOST_POINTS // 2) for domain in (source, target)]
    seen = [_features(model, Part(domain, rows)) for domain, rows in zip((source, target), kept)]
    xy = tsne(np.concatenate(seen))
    named = {
        "domain": np.repeat(["source", "target"], [len(rows) for rows in kept]),
        "row": np.concatenate(kept),
    }
    return pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], **named})


def tsne(features: Any, seed: int = 0) -> np.ndarray:
    """t-SNE to two dimensions (perplexity 30, started from PCA), after PCA to 50. [n, d] → [n, 2]."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    x = np.asarray(features, dtype=np.float32)
    require(len(x) >= 4, f"There are {len(x)} samples: t-SNE needs at least 4.")
    x = PCA(min(50, *x.shape), random_state=seed).fit_transform(x)
    perplexity = min(30.0, (len(x) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(x)


def _features(model: Model, domain: Target) -> np.ndarray:
    return np.concatenate([features.numpy() for features, _ in model.outputs(domain)])
