"""Accuracy on photos by how deep a backbone is trained, with a curve of every run.

    python benchmarks/fine_tune.py LISTS ROOT --depths head,tail --seeds 3 --steps 300
    python benchmarks/fine_tune.py LISTS ROOT --page docs/results/fine_tune.md       # from finished runs

LISTS holds list files (``path label``) NAME.txt of the domains and the source's class names. Finished runs are
kept, one JSON line each. The target's labels are read after training, to score what was predicted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from ba3us.image_runs import ImageOptions, opening
from ba3us.image_runs.plan import Plan

from ba3us import methods
from ba3us.bench import markdown
from ba3us.cli.memory import keep_memory
from ba3us.nn.backbones import create_backbone
from ba3us.selection import summary
from ba3us.training import RunConfig, Trainer

TARGETS = {"A": "amazon10", "W": "webcam10", "D": "dslr10"}


def labels_of(listing: Path, paths: list[str]) -> np.ndarray:
    """Labels of a list file, in the order of `paths`."""
    pairs = (line.rsplit(maxsplit=1) for line in listing.read_text(encoding="utf-8").splitlines() if line)
    known = {Path(path).as_posix(): int(label) for path, label in pairs}
    return np.array([known[Path(path).as_posix()] for path in paths])


def run(args: argparse.Namespace, depth: str, target: str, method: str, seed: int) -> dict[str, Any]:
    """Train and score once."""
    chosen = ImageOptions(train=depth, views=args.views, size=args.size)
    plan = Plan(methods.get(method).config(steps=args.steps), method, seed, args.threads, chosen)
    backbone = create_backbone(chosen.backbone)
    backbone = dataclasses.replace(backbone, size=args.size or backbone.size)
    side, listing = plan.blueprint(backbone, 0).side, args.lists / f"{TARGETS[target]}.txt"
    names = args.lists / f"{args.source}_classes.txt"
    listed = opening.list_source(args.lists / f"{args.source}.txt", args.root, names)
    found = opening.open_source(listed, side, chosen, True)
    given = opening.open_target(opening.list_target(listing, args.root), side, chosen, True)
    blueprint = plan.blueprint(backbone, len(found.class_names))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        front, step = blueprint.assemble(backbone)
    source, unlabelled = plan.domains(blueprint, found, given, front, True)
    start = time.perf_counter()
    config = RunConfig(seed=seed, threads=args.threads, predict_batch=32)
    keep_memory()
    result = Trainer(step.network, step.method, config).fit(source, unlabelled)
    seconds = time.perf_counter() - start
    labels = labels_of(listing, given.pixels.images.paths)
    curve = [(e.step, float((e.predictions == labels).mean()), e.scores["entropy"]) for e in result.evaluations]
    row = {"depth": depth, "task": f"C->{target}", "method": method, "seed": seed, "updates": args.steps}
    return {**row, "seconds": round(seconds, 1), **summary(result, labels), "curve": curve}


def page(rows: pd.DataFrame, command: str) -> str:
    """Tables of the finished runs."""
    rows = rows.assign(accuracy=100 * rows["min-entropy"])
    cells = rows.groupby(["depth", "method", "task"], sort=False)["accuracy"].agg(["mean", "std", "count"])
    text = cells.apply(
        lambda c: f"{c['mean']:.1f} ± {0 if np.isnan(c['std']) else c['std']:.1f} ({c['count']:.0f})", axis=1
    )
    table = text.unstack("task").fillna("–")
    by_task = rows.groupby(["depth", "method", "task"])[["last", "min-entropy", "oracle", "seconds"]].mean()
    by_method = by_task.groupby(["depth", "method"], sort=False).mean()
    for name in ("last", "min-entropy", "oracle"):
        table[f"{name}, Avg"] = (100 * by_method[name]).map("{:.2f}".format)
    table["s/run"] = by_method["seconds"].map("{:.0f}".format)
    table.index = [" · ".join(key) for key in table.index]
    table.index.name = "trained · method"
    return f"```console\n{command}\n```\n\n{markdown(table)}\n"


def curves(rows: pd.DataFrame, path: Path) -> None:
    """A picture: accuracy at every look at the target, one panel per task, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    tasks = list(dict.fromkeys(rows["task"]))
    figure, axes = plt.subplots(1, len(tasks), figsize=(4 * len(tasks), 3.2), layout="constrained", sharey=True)
    styles = {"head": ":", "tail": "-", "all": "--"}
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(rows["method"]))}
    for axis, task in zip(np.atleast_1d(axes), tasks):
        for (depth, method), group in rows[rows["task"] == task].groupby(["depth", "method"], sort=False):
            mean = np.mean([[(s, 100 * a) for s, a, _ in curve] for curve in group["curve"]], axis=0)
            axis.plot(*mean.T, styles.get(depth, "-."), color=colours[method], label=f"{method}, {depth}")
        axis.set(title=task, xlabel="update")
        axis.grid(alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("target accuracy, %")
    np.atleast_1d(axes)[-1].legend(fontsize=6)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--source", default="caltech107")
    parser.add_argument("--targets", default="D,W,A")
    parser.add_argument("--depths", default="head,tail")
    parser.add_argument("--methods", default="source-only,e-dann,baa,ba3us")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--size", type=int, help="side of the crops, instead of the backbone's own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/fine_tune.jsonl"))
    parser.add_argument("--page", type=Path, help="write tables and curves of finished runs, run nothing")
    args = parser.parse_args()
    lines = args.out.read_text(encoding="utf-8").splitlines() if args.out.exists() else []
    done = pd.DataFrame(map(json.loads, lines))
    if args.page:
        args.page.write_text(page(done, "python benchmarks/fine_tune.py LISTS ROOT"), encoding="utf-8")
        curves(done, args.page.with_suffix(".png"))
        return
    finished = set() if done.empty else set(zip(done["depth"], done["task"], done["method"], done["seed"]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for target in args.targets.split(","):
            for depth in args.depths.split(","):
                for method in args.methods.split(","):
                    if (depth, f"C->{target}", method, seed) in finished:
                        continue
                    row = run(args, depth, target, method, seed)
                    with args.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    shown = {k: v for k, v in row.items() if k != "curve"}
                    print(shown, flush=True)


if __name__ == "__main__":
    main()
