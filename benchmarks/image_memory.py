"""Peak memory of `ba3us adapt` on folders of 5,000 and 50,000 images, for each depth of training.

    python benchmarks/image_memory.py PHOTOS [--files 5000 50000] [--train head tail] [--out …]

PHOTOS holds real photos in class folders at any depth; the large folders are made of hard links to them
(symbolic ones across disks), half source in class folders, half target. The cache knows a file by its path, so
every link is decoded and kept as if it were a photo of its own. Peaks are the child's `ru_maxrss`, which also
counts pages of the memory-mapped cache that happen to be resident.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import Process, Queue
from pathlib import Path

from image_step import random_weights  # beside this file


def link(photos: list[Path], count: int, folder: Path) -> None:
    """`count` links below `folder`: half of them in class folders, half in one flat folder."""
    for number in range(count):
        photo = photos[number // 2 % len(photos)]
        place = folder / "target" if number % 2 else folder / "source" / photo.parent.name
        place.mkdir(parents=True, exist_ok=True)
        new = place / f"{number}{photo.suffix}"
        try:
            os.link(photo, new)
        except OSError:
            new.symlink_to(photo.resolve())


def _adapt(command: list[str], answers: Queue) -> None:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    said = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-400:]}
    answers.put((peak, time.perf_counter() - start, said))


def adapt(folder: Path, train: str, args: argparse.Namespace) -> tuple[float, float]:
    """Peak memory in GB and seconds of one run, in a grandchild so that peaks do not mix."""
    command = [sys.executable, "-m", "ba3us", "adapt", str(folder / "source"), str(folder / "target")]
    command += ["--train", train, "--size", str(args.size), "--views", str(args.views), "--json"]
    command += ["--steps", str(args.steps), "--cache-gb", str(args.cache_gb)]
    command += ["--out", str(folder / f"run-{train}")]
    if args.backbone:
        command += ["--backbone", args.backbone, "--weights", random_weights(args.backbone, folder)]
    answers: Queue = Queue()
    child = Process(target=_adapt, args=(command, answers))
    child.start()
    peak, seconds, said = answers.get()
    child.join()
    if "error" in said:
        raise SystemExit(said["error"])
    return peak, seconds


def measure(args: argparse.Namespace) -> str:
    """Run everything; the report as Markdown."""
    photos = sorted(path for path in args.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    lines = ["| images | `--train` | peak resident memory (GB) | seconds |", "|---:|---|---:|---:|"]
    for count in args.files:
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            folder = Path(name)
            os.environ["BA3US_CACHE"] = str(folder / "cache")
            link(photos, count, folder)
            for train in args.train:
                peak, seconds = adapt(folder, train, args)
                lines.append(f"| {count:,} | {train} | {peak:.2f} | {seconds:.0f} |")
                print(lines[-1], file=sys.stderr, flush=True)
    command = f"python benchmarks/image_memory.py {args.photos.name} --files {' '.join(map(str, args.files))}"
    command += f" --train {' '.join(args.train)} --size {args.size} --views {args.views} --steps {args.steps}"
    command += f" --cache-gb {args.cache_gb:g}" + (f" --backbone {args.backbone}" if args.backbone else "")
    return f"""# Peak memory on folders of images

    {command}

{args.backbone or "EfficientNet-Lite0"}, crops of {args.size} px, {args.views} kept view(s) per image and the
centre, BA³US, {args.steps} updates, links to {len(photos):,} photos. The seconds are
of a shared machine and say little.

{chr(10).join(lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--files", type=int, nargs="+", default=[5000, 50000])
    parser.add_argument("--train", nargs="+", default=["head", "tail"])
    parser.add_argument("--backbone", help="a small one with random weights, in place of EfficientNet-Lite0")
    parser.add_argument("--size", type=int, default=64, help="small crops, so that 50,000 images take minutes")
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cache-gb", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, help="where the links, the cache and the runs go for a while")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = measure(args)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
