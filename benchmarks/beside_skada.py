"""Bad inputs given to skada and to ba3us side by side: what each says, or what comes out.

    python benchmarks/beside_skada.py

skada: StandardScaler, CORAL and a logistic regression in its own pipeline. ba3us: ``PartialAdapter(steps=20)``.
Four clouds in the source, two of them in the target; each input below is spoilt in one way.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from skada import CORALAdapter, make_da_pipeline
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ba3us import PartialAdapter

Input = tuple[Any, Any, Any, Any]  # source, its labels, target, the target's labels


def good() -> Input:
    g = np.random.default_rng(0)
    y, yt = np.arange(80) % 4, np.arange(40) % 2
    centres = 3 * g.standard_normal((4, 6))
    return centres[y] + g.standard_normal((80, 6)), y, centres[yt] + 0.5 + g.standard_normal((40, 6)), yt


def changed(array: np.ndarray, row: int, value: Any, dtype: Any = None) -> np.ndarray:
    made = array.astype(dtype or array.dtype)
    made[row] = value
    return made


X, Y, XT, YT = good()
INPUTS: dict[str, Input] = {
    "nothing is wrong": (X, Y, XT, YT),
    "a NaN in row 3 of the target": (X, Y, changed(XT, 3, np.nan), YT),
    "one row in the target": (X, Y, XT[:1], YT[:1]),
    "all features times 1e30": (1e30 * X, Y, 1e30 * XT, YT),
    "all features times 1e200": (1e200 * X, Y, 1e200 * XT, YT),
    "labels -1 and -2 among the source's": (X, Y - 2, XT, YT - 2),
    "labels True, 1, 2 and 3": (X, np.array([True, 1, 2, 3], object)[Y], XT, np.array([True, 1], object)[YT]),
    "one class in the source": (X, 0 * Y, XT, YT),
}


def of_skada(x: Any, y: Any, xt: Any) -> np.ndarray:
    both, domain = np.concatenate([x, xt]), np.r_[np.ones(len(x), int), -2 * np.ones(len(xt), int)]
    hidden = np.concatenate([y, np.full(len(xt), -1)])
    model = make_da_pipeline(StandardScaler(), CORALAdapter(), LogisticRegression(max_iter=500))
    return model.fit(both, hidden, sample_domain=domain).predict(xt)


def of_ba3us(x: Any, y: Any, xt: Any) -> np.ndarray:
    return PartialAdapter(steps=20, n_threads=1).fit(x, y, xt).predict(xt)


def said(system: Callable[..., np.ndarray], x: Any, y: Any, xt: Any, yt: Any) -> str:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = system(x, y, xt)
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:170]}"
    right = f"{100 * np.mean(found == yt):.0f} % right"
    return right + (f", {len(heard)} warnings" if heard else "")


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("| input | skada | ba3us |\n|---|---|---|")
    for name, given in INPUTS.items():
        print(f"| {name} | {said(of_skada, *given)} | {said(of_ba3us, *given)} |", flush=True)


if __name__ == "__main__":
    main()
