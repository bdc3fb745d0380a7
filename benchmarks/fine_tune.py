"""Accuracy on photos by how deep a backbone is trained, with a curve of every run.

    python benchmarks/fine_tune.py LISTS ROOT --depths head,tail --seeds 3 --steps 300
    python benchmarks/fine_tune.py LISTS ROOT --page docs/results/fine_tune.md       # from finished runs

LISTS holds list files (``path label``, paths from ROOT) NAME.txt of the domains and NAME_classes.txt of the
source. Finished runs are kept, one JSON line each. The target's labels are read after training, to score what
was predicted.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tables import markdown  # beside this file

from ba3us.adapt import train
from ba3us.assess.scoring import accuracies, summary
from ba3us.cli.app import keep_memory
from ba3us.run.opening import open_spec
from ba3us.run.spec import Spec

AVERAGED = ("last", "selected", "oracle", "absent")


def labels_of(listing: Path, paths: list[str], names: list[str], classes: list[str]) -> np.ndarray:
    """Labels of a list file in the order of `paths`, as places in `classes`."""
    pairs = (line.rsplit(maxsplit=1) for line in listing.read_text(encoding="utf-8").splitlines() if line)
    known = {Path(path).as_posix(): classes.index(names[int(label)]) for path, label in pairs}
    return np.array([known[Path(path).as_posix()] for path in paths])


def run(args: argparse.Namespace, depth: str, target: str, method: str, seed: int) -> dict[str, Any]:
    """Train and score once."""
    listing, names = args.lists / f"{target}.txt", args.lists / f"{args.source}_classes.txt"
    spec = Spec(
        source=str(args.lists / f"{args.source}.txt"),
        target=str(listing),
        root=str(args.root),
        classes=str(names),
        method=method,
        method_params={"steps": args.steps} | ({"batch_size": args.batch} if args.batch else {}),
        train=depth,
        views=args.views,
        size=args.size,
        seed=seed,
        n_threads=args.n_threads,
    )
    opened = open_spec(spec, show=True)
    keep_memory()
    trained, _ = train(spec, opened)
    said = names.read_text(encoding="utf-8").splitlines()
    labels = labels_of(listing, opened.paths, said, opened.classes)
    curve = accuracies(trained.evaluations, labels)[["step", "accuracy"]].to_numpy().tolist()
    row = {"depth": depth, "target": target, "method": method, "seed": seed, "updates": args.steps}
    scores = summary(trained, labels)
    found = {rule: score.accuracy for rule, score in scores.items()} | {"absent": scores["selected"].absent}
    return {**row, "seconds": trained.about["seconds"], **found, "curve": curve}


def page(rows: pd.DataFrame, command: str) -> str:
    """Tables of the finished runs."""
    rows = rows.assign(accuracy=100 * rows["selected"])
    cells = rows.groupby(["depth", "method", "target"], sort=False)["accuracy"].agg(["mean", "std", "count"])
    text = cells.apply(
        lambda c: f"{c['mean']:.1f} ± {0 if np.isnan(c['std']) else c['std']:.1f} ({c['count']:.0f})", axis=1
    )
    table = text.unstack("target").fillna("–")
    by_target = rows.groupby(["depth", "method", "target"])[[*AVERAGED, "seconds"]].mean()
    by_method = by_target.groupby(["depth", "method"], sort=False).mean()
    for name in AVERAGED:
        table[f"{name}, Avg"] = (100 * by_method[name]).map("{:.2f}".format)
    table["s/run"] = by_method["seconds"].map("{:.0f}".format)
    table.insert(0, "trained · method", [" · ".join(key) for key in table.index])
    return f"```console\n{command}\n```\n\n{markdown(table)}\n"


def curves(rows: pd.DataFrame, path: Path) -> None:
    """A picture: accuracy at every look at the target, one panel per target, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    targets = list(dict.fromkeys(rows["target"]))
    figure, axes = plt.subplots(
        1, len(targets), figsize=(4 * len(targets), 3.2), layout="constrained", sharey=True
    )
    styles = {"head": ":", "tail": "-", "all": "--"}
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(rows["method"]))}
    for axis, target in zip(np.atleast_1d(axes), targets):
        for (depth, method), group in rows[rows["target"] == target].groupby(["depth", "method"], sort=False):
            mean = np.mean([[(s, 100 * a) for s, a in curve] for curve in group["curve"]], axis=0)
            axis.plot(*mean.T, styles.get(depth, "-."), color=colours[method], label=f"{method}, {depth}")
        axis.set(title=target, xlabel="update")
        axis.grid(alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("target accuracy, %")
    np.atleast_1d(axes)[-1].legend(fontsize=6)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--source", default="caltech107")
    parser.add_argument("--targets", default="dslr10,webcam10,amazon10")
    parser.add_argument("--depths", default="head,tail")
    parser.add_argument("--methods", default="source-only,e-dann,baa,ba3us")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, help="instead of the method's own")
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
    finished = set() if done.empty else set(zip(done["depth"], done["target"], done["method"], done["seed"]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lists = (text.split(",") for text in (args.targets, args.depths, args.methods))
    for seed, target, depth, method in itertools.product(range(args.seeds), *lists):
        if (depth, target, method, seed) in finished:
            continue
        row = run(args, depth, target, method, seed)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print({k: v for k, v in row.items() if k != "curve"}, flush=True)


if __name__ == "__main__":
    main()
