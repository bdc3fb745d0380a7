"""How often and why runs collapse when alignment starts on an untrained network (MNIST → digits 0–4).

    python benchmarks/warm_start.py [--seeds 5] [--out docs/results/warm_start.md]

Every system is trained with and without a warm start of source-only updates, with class weights believed at
once (as published) or in proportion to progress (our default), and with or without entropy minimisation
(α = 0.1 as published, or 0). For each run the least class
weight that any *present* class had after the first quarter of the refreshes is written down, in units of the
uniform weight: where it is near 0, the class was cut off from the source cross-entropy. That column, like the
accuracies, uses target labels afterwards, for the diagnosis only.
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

from ba3us import demo
from ba3us.bench import markdown
from ba3us.data.digits import PRESENT, mnist_to_digits
from ba3us.selection import accuracies, selected_accuracy

SYSTEMS = ("source-only", "e-dann", "ba3us")
TOTAL = demo.OPTIONS["steps"] + demo.OPTIONS["warmup_steps"]


def measure(job: tuple[str, int, str, float, int]) -> dict[str, Any]:
    name, warmup, trust, alpha, seed = job
    torch.set_num_threads(1)
    labels = mnist_to_digits()[2]
    options: dict[str, Any] = {"warmup_steps": warmup, "steps": TOTAL - warmup}
    if name != "source-only":
        options |= {"trust": trust, "alpha": alpha}
    result = demo.train(name, seed, options)
    shares = np.stack([e.mean_probabilities for e in result.evaluations if e.candidate])
    early = shares[: max(1, len(shares) // 4), list(PRESENT)].min() * shares.shape[1]
    return {
        "system": name,
        "warm start": str(warmup),
        "class weights": "–" if name == "source-only" else trust,
        "α": "–" if name == "source-only" else str(alpha),
        "seed": seed,
        "accuracy": 100 * selected_accuracy(result, labels),
        "last": 100 * float(accuracies(result.evaluations, labels)["accuracy"].iloc[-1]),
        "early least weight": float(early),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warm = demo.OPTIONS["warmup_steps"]
    settings = [(w, t, 0.1) for w in (0, warm) for t in ("full", "progress")] + [(warm, "progress", 0.0)]
    jobs = [("source-only", warm, "full", 0.0, s) for s in range(args.seeds)]
    jobs += [
        (name, *setting, seed) for name in SYSTEMS[1:] for setting in settings for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        rows = pd.DataFrame(list(pool.map(measure, jobs)))
    baseline = rows[rows["system"] == "source-only"].set_index("seed")["accuracy"]
    lines = []
    for key, part in rows.groupby(["system", "warm start", "class weights", "α"], sort=False):
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
    columns = [
        "system",
        "warm start",
        "class weights",
        "accuracy",
        "worst seed",
        "below source-only",
        "least weight",
    ]
    table = pd.DataFrame(lines, columns=columns).set_index("system")
    text = markdown(table)
    print(text)
    if args.out:
        note = (
            f"`python benchmarks/warm_start.py --seeds {args.seeds}`; {TOTAL} updates in all for every system."
        )
        args.out.write_text(f"# Warm start and trust in class weights\n\n{note}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
