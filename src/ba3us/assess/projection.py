"""Projections of features to the plane, for drawings: PCA and t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np

from ba3us.errors import require

MAX_POINTS = 2000  # in one t-SNE
MIN_POINTS = 4


def tsne(features: Any, seed: int = 0) -> np.ndarray:
    """t-SNE to two dimensions (perplexity 30, started from PCA), after PCA to 50. [n, d] → [n, 2]."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    x = np.asarray(features, dtype=np.float32)
    require(len(x) >= MIN_POINTS, f"There are {len(x)} samples: t-SNE needs at least {MIN_POINTS}.")
    x = PCA(min(50, *x.shape), random_state=seed).fit_transform(x)
    perplexity = min(30.0, (len(x) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(x)


def pca(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two directions of most variance, [n, 2], and the part of the variance that each explains, [2]."""
    from sklearn.decomposition import PCA

    n_components = min(2, *features.shape)
    fitted = PCA(n_components, random_state=0)
    xy, explained = np.zeros((len(features), 2)), np.zeros(2)
    xy[:, :n_components] = fitted.fit_transform(features.astype(np.float64))
    explained[:n_components] = np.nan_to_num(fitted.explained_variance_ratio_)
    return xy, explained
