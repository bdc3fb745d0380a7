"""What the largest inputs take: memory and time, measured each in a process of its own.

    python benchmarks/limits.py classes [--classes 1000]     # every method that takes features
    python benchmarks/limits.py stream [--rows 1000000]      # a target on disk, adapted to and predicted
    python benchmarks/limits.py files [--files 100000]       # a folder of small images: listed, adapted to
    python benchmarks/limits.py bench [--runs 10000]         # tiny runs through ``ba3us bench``

Peak memory is that of a forked process, which begins with what Python and torch take (the first row).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ba3us import PartialAdapter, methods
from ba3us.errors import UserError

DIM = 64


def apart(work: Callable[[], str]) -> tuple[str, float, float]:
    """What `work` says, its peak memory (MB) and seconds, in a process of its own."""
    reading, writing = os.pipe()
    start, child = time.perf_counter(), os.fork()
    if child == 0:
        os.close(reading)
        try:
            said = work()
        except UserError as error:
            said = f"refused: {error}"
        except BaseException as error:
            said = f"FAILED: {type(error).__name__}: {error}"
            traceback.print_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(child, 0)
    died = f"KILLED by signal {status}" if status else ""
    return said or died, usage.ru_maxrss / 1024, time.perf_counter() - start


def row(name: str, work: Callable[[], str]) -> None:
    said, peak, seconds = apart(work)
    print(f"| {name} | {peak:.0f} | {seconds:.1f} | {said} |", flush=True)


def clouds(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    g, y = np.random.default_rng(seed), np.arange(rows) % classes
    centres = np.random.default_rng(99).standard_normal((classes, DIM)).astype(np.float32)
    return centres[y] + 0.3 * g.standard_normal((rows, DIM), dtype=np.float32), y


def of_classes(count: int, chosen: list[str]) -> None:
    """Chosen methods, or every one on features: five rows of each class, three updates, its own settings."""
    x, y = clouds(5 * count, count)
    xt, _ = clouds(1000, max(2, count // 5), 1)

    def work(name: str) -> Callable[[], str]:
        model = PartialAdapter(name, steps=3, n_threads=1)
        return lambda: f"{len(model.fit(x, y, xt).predict(xt))} rows"

    row("nothing", lambda: "")
    for name in chosen or [entry.name for entry in methods.entries() if "pixels" not in entry.info.needs]:
        row(name, work(name))


def of_stream(rows: int) -> None:
    """A target on disk: the automatic choice and two named methods, then predictions of all of it."""
    x, y = clouds(5000, 50)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "target.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, DIM))
        for start in range(0, rows, 10_000):
            end = min(rows, start + 10_000)
            file[start:end] = clouds(end - start, 10, start)[0]
        del file
        print(f"{rows:,} rows of {DIM} float32, {path.stat().st_size / 1e6:.0f} MB on disk")
        row("nothing", lambda: "")
        for name in ("auto", "source-only", "ba3us"):
            for part in (10_000, rows):

                def work(name: str = name, part: int = part) -> str:
                    target = np.load(path, mmap_mode="r")[:part]
                    model = PartialAdapter(name, steps=200, n_threads=1).fit(x, y, target)
                    return (
                        f"{100 * np.mean(model.predict(target) == np.arange(part) % 10_000 % 10):.1f} % right"
                    )

                row(f"{name}, {part:,} rows", work)


def of_files(count: int) -> None:
    """A folder of tiny images, a thousand to a subfolder: listed, embedded by the automatic choice's opener."""
    from ba3us.data.image_cache import open_images
    from ba3us.data.images import read_images

    with tempfile.TemporaryDirectory() as folder:
        os.environ["BA3US_CACHE"] = str(Path(folder) / "cache")
        root = Path(folder) / "photos"
        for number in range(count):
            place = root / f"{number // 1000:03d}"
            if number % 1000 == 0:
                place.mkdir(parents=True)
            (place / f"{number}.png").write_bytes(png(number))
        row("nothing", lambda: "")
        row("list", lambda: f"{len(read_images(root))} images")
        row("list and decode, 8×8", lambda: f"{len(open_images(read_images(root), 8).images)} images")
        row("the same, decoded before", lambda: f"{len(open_images(read_images(root), 8).images)} images")


def png(number: int) -> bytes:
    """A 4×4 picture."""
    colour = bytes([number % 251, number // 251 % 251, 100])
    lines = zlib.compress((b"\0" + 4 * colour) * 4)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = (4).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def of_bench(runs: int) -> None:
    """Runs of two updates on thirty rows: how many a minute, and what reading them takes."""
    from ba3us import bench

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, seed in (("one", 0), ("two", 1)):
            x, y = clouds(30, 3, seed)
            np.savez(place / f"{name}.npz", features=x, labels=y, class_names=np.array(["ant", "bee", "cat"]))
        protocol = place / "toy.yaml"
        protocol.write_text("domains: {P: one.npz, Q: two.npz}\ntasks: [P->Q, Q->P]\noptions: {steps: 2}\n")

        def work(half: bool) -> str:
            seeds = max(1, runs // (4 if half else 2))
            study = bench.prepare(protocol, methods="source-only", seeds=seeds)
            rows = bench.run(study, place / "runs.sqlite", workers=2)
            size = (place / "runs.sqlite").stat().st_size / 1e6
            return f"{len(rows)} runs, {int(rows['accuracy:last'].notna().sum())} with a figure, {size:.0f} MB"

        row("nothing", lambda: "")
        row("the first half", lambda: work(True))
        row("the second half", lambda: work(False))
        row("all again: read, nothing run", lambda: work(False))
        row("the page", lambda: paged(protocol, place, runs))


def paged(protocol: Path, place: Path, runs: int) -> str:
    from ba3us import bench

    study = bench.prepare(protocol, methods="source-only", seeds=max(1, runs // 2))
    rows = bench.run(study, place / "runs.sqlite")
    return f"{len(bench.study_tables(study, rows))} tables"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("classes", "stream", "files", "bench"))
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--methods", default="", help="of classes: names, comma-separated (default: all)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10_000)
    arguments = parser.parse_args()
    print("| | peak memory (MB) | seconds | |\n|---|---:|---:|---|", flush=True)
    {
        "classes": lambda: of_classes(
            arguments.classes, [name for name in arguments.methods.split(",") if name]
        ),
        "stream": lambda: of_stream(arguments.rows),
        "files": lambda: of_files(arguments.files),
        "bench": lambda: of_bench(arguments.runs),
    }[arguments.what]()


if __name__ == "__main__":
    main()
