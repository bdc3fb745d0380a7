"""A million rows on disk: memory and time of BA³US on a memory-mapped source, beside a small one in memory.

    python benchmarks/scale.py [--rows 1000000] [--steps 500] [--folder DIR] [--out docs/results/scale.md]

The file (2 GB by default) is written in chunks into a temporary folder and removed afterwards. Steps of the
small and the large source are timed in turns within one run, on one thread, because the machine may be shared;
for the same reason CPU time stands beside the time on the clock. "Cold" means that the file was pushed out of
the page cache before the round.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from ba3us import PartialAdapter
from ba3us.adapt import train
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec
from ba3us.training import Callback

DIM, CLASSES, PRESENT, TARGET_ROWS, SMALL_ROWS, CHUNK = 1024, 100, 20, 2000, 10_000, 2000


class Clock(Callback):
    """Seconds on the clock and of CPU for every update, but those around a look at the whole target."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float]] = []
        self._last: tuple[float, float] | None = None

    def on_evaluation(self, trainer, evaluation) -> None:
        self._last = None

    def on_step(self, trainer, step) -> None:
        now = time.perf_counter(), time.process_time()
        if self._last is not None:
            self.steps.append((now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now

    def medians(self) -> tuple[float, float]:
        """Milliseconds per update: on the clock, of CPU."""
        clock, cpu = (1000 * statistics.median(values) for values in zip(*self.steps))
        return clock, cpu


def cloud(generator: np.random.Generator, centres: np.ndarray, labels: np.ndarray) -> np.ndarray:
    noise = generator.standard_normal((len(labels), DIM), dtype=np.float32)
    return (centres[labels] + noise).astype(np.float16)


def write(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Write the large source; returns its labels, the target, and a small source."""
    generator = np.random.default_rng(0)
    centres = 0.3 * generator.standard_normal((CLASSES, DIM), dtype=np.float32)
    labels = generator.integers(0, CLASSES, rows)
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (rows, DIM)}
        np.lib.format.write_array_header_2_0(file, header)
        for start in range(0, rows, CHUNK):
            file.write(cloud(generator, centres, labels[start : start + CHUNK]).tobytes())
        file.flush()
        os.fsync(file.fileno())
    target_labels = generator.integers(0, PRESENT, TARGET_ROWS)
    target = cloud(generator, centres + 0.1, target_labels)
    small = cloud(generator, centres, labels[:SMALL_ROWS])
    return labels, target, target_labels, small


def forget(path: Path) -> None:
    """Push the file out of the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak() -> float:
    """The process's peak resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step_time(source: np.ndarray, labels: np.ndarray, target: np.ndarray, steps: int) -> tuple[float, float]:
    """Median milliseconds of an update: on the clock, of CPU."""
    clock, opened = Clock(), OpenedArrays(ArraySamples((DIM,)), source, labels, target, list(range(CLASSES)))
    train(Spec(method_params={"steps": steps}, n_threads=1), opened, callbacks=[clock])
    return clock.medians()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary file goes")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        text = measure(Path(folder) / "source.npy", arguments.rows, arguments.steps, arguments.rounds)
    print(text)
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


def measure(path: Path, rows: int, steps: int, rounds: int) -> str:
    """Run everything; the report as Markdown."""
    labels, target, target_labels, small = write(path, rows)
    size, start_peak = path.stat().st_size / 1e9, peak()
    x = np.load(path, mmap_mode="r")

    start = time.perf_counter()
    model = PartialAdapter("ba3us", steps=steps, n_threads=1).fit(x, labels, target)
    fit_seconds, fit_peak = time.perf_counter() - start, peak()
    accuracy = 100 * model.score(target, target_labels)
    start = time.perf_counter()
    predicted = model.predict(x)
    predict_seconds, predict_peak = time.perf_counter() - start, peak()
    agreement = 100 * float(np.mean(predicted == labels))

    times: dict[str, list[tuple[float, float]]] = {"small": [], "large": [], "cold": []}
    for _ in range(rounds):
        times["small"].append(step_time(small, labels[:SMALL_ROWS], target, steps))
        times["large"].append(step_time(x, labels, target, steps))
        forget(path)
        times["cold"].append(step_time(x, labels, target, steps))
    median = {name: [statistics.median(values) for values in zip(*found)] for name, found in times.items()}
    names = {
        "small": f"{SMALL_ROWS:,} rows in memory",
        "large": f"{rows:,} rows on disk",
        "cold": f"{rows:,} rows on disk, cold",
    }
    steps_table = [
        f"| {names[name]} | {clock:.2f} | {clock / median['small'][0]:.2f}× | {cpu:.2f} "
        f"| {cpu / median['small'][1]:.2f}× |"
        for name, (clock, cpu) in median.items()
    ]
    return f"""# {rows:,} rows from a memory-mapped file

    python benchmarks/scale.py --rows {rows} --steps {steps} --rounds {rounds}

Source: {rows:,} × {DIM} float16 ({size:.2f} GB on disk, {CLASSES} classes) of Gaussian clouds; target:
{TARGET_ROWS:,} rows of {PRESENT} of the classes, shifted. BA³US with its default settings, {steps} updates.

| | seconds | peak resident memory (MB) |
|---|---:|---:|
| before: Python, torch, writing the file in chunks | | {start_peak:.0f} |
| `PartialAdapter.fit` on the mapped file, which looks for NaN first | {fit_seconds:.1f} | {fit_peak:.0f} |
| `predict` of all {rows:,} rows | {predict_seconds:.1f} | {predict_peak:.0f} |
| the rounds of the next table | | {peak():.0f} |

Target accuracy {accuracy:.1f} %; {agreement:.1f} % of the source's rows are predicted as they are labelled.

Time of an update on one thread: the median over the updates of a round, and of that the median of {rounds}
interleaved rounds; where the machine is shared, the clock says less than the CPU time. "Cold": the file was
pushed out of the page cache before the round.

| source | ms on the clock | against small | ms of CPU | against small |
|---|---:|---:|---:|---:|
{chr(10).join(steps_table)}
"""


if __name__ == "__main__":
    main()
