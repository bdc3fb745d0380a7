"""Memory and open files over a long training: ``python benchmarks/soak.py --minutes 60``.

Two halves: one run that goes on and on, and short runs one after the other. A straight line through the
resident memory after the first tenth says how much 1,000 updates cost; more than a megabyte, or more open files
at the end than after the first tenth, is a failure (exit code 1).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch

from ba3us.adapt import train
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec
from ba3us.training import Callback

MOST = 1.0  # megabytes per 1,000 updates
ROWS, WIDTH, CLASSES = 2000, 256, 20
OPTIONS = {"batch_size": 36, "refresh_every": 500, "bottleneck": 64, "discriminator_hidden": 64}


class Gauge(Callback):
    """Notes updates, resident memory and open files now and then; ends training when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.until, self.noted, self.updates = time.monotonic() + seconds, 0.0, 0
        self.notes: list[tuple[int, float, int]] = []

    def on_step(self, trainer, step) -> None:
        """Count, and look once a second."""
        self.updates += 1
        now = time.monotonic()
        if now - self.noted >= 1:
            self.noted = now
            self.notes.append((self.updates, resident(), len(os.listdir("/proc/self/fd"))))
            if now > self.until:
                raise TimeoutError


def resident() -> float:
    """Megabytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def samples() -> OpenedArrays:
    """Random vectors of a few classes, and a target of half of them, shifted."""
    g = np.random.default_rng(0)
    centres = g.standard_normal((CLASSES, WIDTH))
    y, yt = np.arange(ROWS) % CLASSES, np.arange(ROWS) % (CLASSES // 2)
    x, xt = (centres[c] + g.standard_normal((ROWS, WIDTH)) + s for c, s in ((y, 0), (yt, 0.3)))
    return OpenedArrays(ArraySamples((WIDTH,)), x.astype("f4"), y, xt.astype("f4"), list(range(CLASSES)))


def one_long_run(gauge: Gauge, opened: OpenedArrays) -> None:
    """A single run with more updates than there is time for."""
    train(
        Spec(method="ba3us", method_params=OPTIONS | {"steps": 10**9}, n_threads=1), opened, callbacks=[gauge]
    )


def many_short_runs(gauge: Gauge, opened: OpenedArrays) -> None:
    """Runs of 300 updates, each with everything that a run makes."""
    seed = 0
    while True:
        train(
            Spec(method="ba3us", method_params=OPTIONS | {"steps": 300}, n_threads=1, seed=seed),
            opened,
            callbacks=[gauge],
        )
        seed += 1


def soaked(name: str, work: Callable[[Gauge, OpenedArrays], None], seconds: float) -> bool:
    """Whether memory and open files stay as they are."""
    gauge = Gauge(seconds)
    with suppress(TimeoutError):
        work(gauge, samples())
    table = np.array(gauge.notes)[len(gauge.notes) // 10 :]
    slope = 1000 * float(np.polyfit(table[:, 0], table[:, 1], 1)[0])
    files = int(table[-1, 2] - table[0, 2])
    print(
        f"{name}: {gauge.updates:,} updates in {seconds / 60:.1f} minutes, {slope:+.4f} MB per 1,000 updates "
        f"({table[0, 1]:.0f} to {table[-1, 1]:.0f} MB), {files:+d} open files",
        flush=True,
    )
    return slope < MOST and files <= 0


def main() -> int:
    """Both halves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    seconds = 60 * parser.parse_args().minutes / 2
    torch.set_num_threads(1)
    halves = {"one long run": one_long_run, "short runs": many_short_runs}
    flat = [soaked(name, work, seconds) for name, work in halves.items()]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main())
