"""An exported model with onnxruntime beside `ba3us predict`, on the same photos, as whole commands.

    python benchmarks/export.py SOURCE TARGET [--train head] [--rounds 3] [--out docs/results/export.md]

A short run is made and exported first. Each command is a process of its own, in turns, and the median counts.
Every one is also run on a single photo, so that what it costs to start can be told from what a photo costs. The
cache is empty each time, and all photos are read once before the first command. Where the machine has
other work to do, look at the seconds of its processors (cpu).
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from ba3us.adapt import adapt
from ba3us.data.images import read_images
from ba3us.export import export
from ba3us.run.spec import Spec

PAGE = Path(__file__).parents[1] / "docs" / "export.md"
ROWS = {"predict": "`ba3us predict`", "onnx": "the script of docs/export.md, with onnxruntime"}


class Cost(NamedTuple):
    """Of one process: seconds from start to end, and seconds of all processors."""

    wall: float
    cpu: float


def started(command: list[str]) -> Cost:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "BA3US_CACHE": cache}
        start = time.perf_counter()
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    assert status == 0, command
    return Cost(wall, used.ru_utime + used.ru_stime)


def commands(work: Path, photos: Path) -> dict[str, list[str]]:
    """What to run on a folder."""
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    (work / "photos.py").write_text(script, encoding="utf-8")
    predict = ["-m", "ba3us", "predict", str(work / "run"), str(photos), "--out", str(work / "predict.csv")]
    alone = [str(work / "photos.py"), str(work / "m.onnx"), str(photos), str(work / "onnx.csv")]
    return {"predict": [sys.executable, *predict], "onnx": [sys.executable, *alone]}


def largest_difference(work: Path) -> tuple[int, float]:
    """Of the two tables: how many classes differ, and by how much a probability does."""
    with (work / "predict.csv").open() as one, (work / "onnx.csv").open() as other:
        ours, theirs = ({row["path"]: row for row in csv.DictReader(file)} for file in (one, other))
    classes = sum(ours[path]["class"] != theirs[path]["class"] for path in ours)
    return classes, max(abs(float(ours[p]["probability"]) - float(theirs[p]["probability"])) for p in ours)


def measure(args: argparse.Namespace, work: Path) -> str:
    """Run everything; the report as Markdown."""
    options = {"steps": 2, "batch_size": 12}
    spec = Spec(
        source=str(args.source),
        target=str(args.target),
        train=args.train,
        size=args.size,
        method_params=options,
    )
    adapt(spec, work / "run")
    summary = export(work / "run", work / "m.onnx")
    images = read_images(args.target, labelled=False)
    for row in range(len(images)):
        images.file(row).read_bytes()
    (work / "one").mkdir()
    (work / "one" / Path(images.paths[0]).name).symlink_to(images.file(0).resolve())
    found: dict[str, list[Cost]] = {name: [] for name in ROWS}
    single: dict[str, list[Cost]] = {name: [] for name in ROWS}
    for _ in range(args.rounds):
        for name in ROWS:
            single[name].append(started(commands(work, work / "one")[name]))
            found[name].append(started(commands(work, args.target)[name]))
    lines = ["| command | | seconds | of them to start | ms per photo |", "|---|---|---:|---:|---:|"]
    for name, title in ROWS.items():
        for kind in Cost._fields:
            whole, first = (
                statistics.median(getattr(c, kind) for c in costs[name]) for costs in (found, single)
            )
            each = 1e3 * (whole - first) / (len(images) - 1)
            lines.append(f"| {title} | {kind} | {whole:.2f} | {first:.2f} | {each:.1f} |")
    classes, far = largest_difference(work)
    command = f"python benchmarks/export.py {args.source.name} {args.target.name} --train {args.train}"
    return (
        f"# An exported model beside `ba3us predict`, {len(images)} photos\n\n    {command}\n\n"
        f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__.split('+')[0]}, commands in turns, "
        f"median of {args.rounds}, from an empty cache; a model of {summary['bytes'] / 1e6:.1f} MB.\n\n"
        + "\n".join(lines)
        + f"\n\nClasses that differ: {classes}; largest difference of a probability: {far:.0e}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--train", default="head")
    parser.add_argument("--size", type=int, help="side of the crops")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        text = measure(args, Path(work))
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
