"""How often and why runs collapse when alignment starts on an untrained network (MNIST → digits 0–4).

    python benchmarks/warm_start.py [--seeds 5] [--out docs/results/warm_start.md]

Every system is trained with and without a warm start of source-only updates, with class weights believed at
once (as published) or in proportion to progress (our default), and with or without entropy minimisation
(α = 0.1 as published, or 0). For each run the least class weight that any *present* class had in the first
quarter of the refreshes is written down, in units of the uniform weight: where it is near 0, the class was cut
off from the source cross-entropy. That column, like the accuracies, uses target labels afterwards, for the
diagnosis only.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tables import markdown  # beside this file

from ba3us.adapt import train
from ba3us.assess.scoring import selected_accuracy
from ba3us.data.digits import PRESENT, mnist_to_digits
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.run import Run
from ba3us.run.spec import Spec

SYSTEMS = ("source-only", "e-dann", "ba3us")
OPTIONS: dict = {"steps": 600, "warmup_steps": 300, "backbone_scale": 1.0}
SMALL: dict = {name: {"discriminator_hidden": 256} for name in SYSTEMS[1:]}


def trained(name: str, seed: int, options: dict | None = None) -> Run:
    """A small network that learns from scratch, on one thread; `options` over those above."""
    x, y, xt, _ = mnist_to_digits()
    spec = Spec(
        method=name, method_params=OPTIONS | SMALL.get(name, {}) | (options or {}), seed=seed, n_threads=1
    )
    return train(spec, OpenedArrays(ArraySamples(x.shape[1:], "small-cnn"), x, y, xt, list(range(10))))[0]


COLUMNS = ["system", "warm start", "class weights", "α"]
MEASURED = ["accuracy", "worst seed", "below source-only", "least weight"]


def measure(job: tuple[str, int, str, float, int, int]) -> dict[str, Any]:
    name, warmup, weights, alpha, seed, total = job
    torch.set_num_threads(1)
    labels = mnist_to_digits()[3]
    options: dict[str, Any] = {"warmup_steps": warmup, "steps": total - warmup}
    if name != "source-only":
        options |= {
            "gradual_weights": weights == "gradual",
            "beta": 1.0 if name == "ba3us" else 0.0,
            "alpha": alpha,
        }
    result = trained(name, seed, options)
    shares = np.stack([e.mean_probabilities for e in result.evaluations if e.candidate])
    early = shares[: max(1, len(shares) // 4), list(PRESENT)].min() * shares.shape[1]
    return {
        "system": name,
        "warm start": str(warmup),
        "class weights": "–" if name == "source-only" else weights,
        "α": "–" if name == "source-only" else str(alpha),
        "seed": seed,
        "accuracy": 100 * selected_accuracy(result, labels),
        "early least weight": float(early),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=OPTIONS["steps"], help="updates after the warm start")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warm = OPTIONS["warmup_steps"]
    total = warm + args.steps
    settings = [(w, t, 0.1) for w in (0, warm) for t in ("full", "gradual")] + [(warm, "gradual", 0.0)]
    jobs = [("source-only", warm, "full", 0.0, s, total) for s in range(args.seeds)]
    jobs += [
        (name, *setting, seed, total)
        for name in SYSTEMS[1:]
        for setting in settings
        for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        rows = pd.DataFrame(list(pool.map(measure, jobs)))
    baseline = rows[rows["system"] == "source-only"].set_index("seed")["accuracy"]
    lines = []
    for key, part in rows.groupby(COLUMNS, sort=False):
        below = int((part["accuracy"].to_numpy() < baseline[part["seed"]].to_numpy()).sum())
        lines.append(
            [
                *key,
                f"{part['accuracy'].mean():.1f} ± {part['accuracy'].std(ddof=0):.1f}",
                f"{part['accuracy'].min():.1f}",
                f"{below} of {len(part)}" if key[0] != "source-only" else "–",
                f"{part['early least weight'].mean():.2f}",
            ]
        )
    text = markdown(pd.DataFrame(lines, columns=[*COLUMNS, *MEASURED]))
    print(text)
    if args.out:
        note = (
            f"`python benchmarks/warm_start.py --seeds {args.seeds}`; {total} updates in all for every system."
        )
        args.out.write_text(f"# Warm start and trust in class weights\n\n{note}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
