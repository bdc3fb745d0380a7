"""Time of a BA³US step with `--train tail` (activations of the frozen part kept) beside `--train all`.

    python benchmarks/tail.py SOURCE TARGET [--backbone efficientnet_lite0] [--out docs/results/tail.md]

SOURCE is a folder of class folders, TARGET any folder of images. Both go through the pipeline of `ba3us adapt`:
cache, crops, kept activations, the loop. Rounds are interleaved within one process; the fastest step of each
counts (other work on the machine only adds). What the frozen part costs once is timed apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from pathlib import Path

import torch
from image_step import Clock, random_weights  # beside this file

from ba3us.cli.app import keep_memory
from ba3us.nn.backbones import OFFLINE
from ba3us.run.build import Blueprint
from ba3us.run.opening import open_spec
from ba3us.run.spec import Spec
from ba3us.training import Execution, Trainer


class Ready:
    """Network, method and domains of one depth of training, ready to run."""

    def __init__(self, train: str, args: argparse.Namespace, weights: str | None) -> None:
        spec = Spec(
            source=str(args.source),
            target=str(args.target),
            method_params={"steps": 10**9, "refresh_every": 10**9},
            backbone=args.backbone,
            weights=weights,
            train=train,
            views=args.views,
            size=args.size,
            cache_gb=20.0,
        )
        opened = open_spec(spec)
        self.images = sum(opened.rows)
        blueprint = Blueprint.of(spec.method, spec.method_options(), opened.classes, opened.samples)
        model = blueprint.build(opened.backbone)
        self.step = model.module
        start = time.perf_counter()
        self.domains = opened.domains(model.front, spec, show=False)
        self.once = time.perf_counter() - start

    def times(self, steps: int) -> list[float]:
        """Seconds of each of so many updates after a first one."""
        recipe, clock = self.step.method.recipe(), Clock()
        phase = dataclasses.replace(recipe.phases[-1], steps=steps + 1, horizon=10**6)
        recipe = dataclasses.replace(recipe, phases=(phase,))
        run = Execution(predict_batch=32)
        Trainer(self.step.network, self.step.method, run, recipe=recipe, callbacks=[clock]).fit(*self.domains)
        return clock.seconds[1:]


def measure(args: argparse.Namespace) -> str:
    """Run everything; the report as Markdown."""
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BA3US_CACHE"] = folder
        # weights do not matter for time
        weights = None if args.backbone == OFFLINE else random_weights(args.backbone, Path(folder))
        ready = {train: Ready(train, args, weights) for train in ("tail", "all")}
        seconds: dict[str, list[float]] = {train: [] for train in ready}
        for _ in range(args.rounds):
            for train, steps in (("tail", 5), ("all", 1)):
                seconds[train] += ready[train].times(steps)
    best = {train: min(values) for train, values in seconds.items()}
    tail, seen = ready["tail"], ready["tail"].images * (args.views + 1)
    command = f"python benchmarks/tail.py {args.source.name} {args.target.name} --backbone {args.backbone}"
    command += f" --views {args.views} --rounds {args.rounds}" + (f" --size {args.size}" if args.size else "")
    return f"""## {args.backbone}

    {command}

| `--train` | s per step of 36 + 36 + 9 images | |
|---|---:|---:|
| all | {best["all"]:.2f} | 1.00× |
| tail | {best["tail"]:.2f} | {best["all"] / best["tail"]:.1f}× faster |

Once, for `tail`: {tail.once:.1f} s for {tail.images} images in {args.views} views and the centre, that is
{1000 * tail.once / seen:.1f} ms a view; as long as {tail.once / best["all"]:.1f} steps of `all`.
{len(os.sched_getaffinity(0))} cores, torch {torch.__version__.split("+")[0]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--backbone", default=OFFLINE)
    parser.add_argument("--size", type=int, help="side of the crops, instead of the backbone's own")
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = measure(args)
    print(text)
    if args.out:
        args.out.write_text(f"# Time of a step by depth of training\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
