"""Small arrays with a shift and two classes missing, and small settings, for the faces on arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ba3us.run import storage
from ba3us.run.build import Model
from toys import CLASSES, WIDTH

NAMES = np.array(["ant", "bee", "cat", "dog"])
assert len(NAMES) == CLASSES
FAST: dict[str, Any] = {
    "steps": 30,
    "n_threads": 1,
    "method_params": {"bottleneck": 8, "discriminator_hidden": 8},
}


def clouds(n_source: int = 80, n_target: int = 40, seed: int = 0):
    """X, y (names), Xt, and the target's labels: a source of four shifted clouds, a target of two."""
    g = np.random.default_rng(seed)
    centres = 3 * g.standard_normal((CLASSES, WIDTH))
    y, yt = np.arange(n_source) % CLASSES, np.arange(n_target) % 2
    x = (centres[y] + g.standard_normal((n_source, WIDTH))).astype(np.float32)
    xt = (centres[yt] + 0.5 + g.standard_normal((n_target, WIDTH))).astype(np.float32)
    return x, NAMES[y], xt, NAMES[yt]


def edit_results(run: Path, **changes: Any) -> None:
    """Write other values into ``results.json`` of a run, with a checksum that holds."""
    digest = Model.load(run / storage.MODEL).digest
    results = storage.read_results(run / storage.RESULTS, digest)
    storage.write_results(run / storage.RESULTS, results | changes, digest)
