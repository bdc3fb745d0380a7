"""What `ba3us check` expects a training to take, beside what it took; on an idle machine.

    python benchmarks/estimates.py DATA [--page docs/results/estimates.md]

DATA holds photos in ``office_caltech10/{amazon,webcam,dslr}/CLASS`` and features of PACS in ``hard``. Every
command is a process of its own; `check` also fills the caches, as it does for a user.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from tables import markdown  # beside this file

from ba3us import __version__
from ba3us.bench.study import commit

PAIRS = {
    "photos, amazon → webcam": ("office_caltech10/amazon", "office_caltech10/webcam"),
    "photos, webcam → dslr": ("office_caltech10/webcam", "office_caltech10/dslr"),
    "features, photo → hasher": ("hard/pacs_photo.npz", "hard/pacs_sketch.npz"),
}
SYSTEMS: dict[str, list[str]] = {"auto": [], "ba3us": ["--method", "ba3us"]}


def called(*arguments: str, folder: Path) -> tuple[str, float, float]:
    """What a command prints, its seconds, and the most memory it had (10⁹ bytes)."""
    environment = os.environ | {"BA3US_CACHE": str(folder / "cache")}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "ba3us", *arguments], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return said, time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e9


def rows(data: Path) -> list[dict[str, str]]:
    """One per pair and system: both estimates, both measurements."""
    found = []
    for name, places in PAIRS.items():
        source, target = (str(data / place) for place in places)
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            said, checking, _ = called("check", source, target, "--json", folder=folder)
            costs = {c["method"]: c for c in json.loads(said)["facts"]["cost"] if c["train"] == "head"}
            for system, words in SYSTEMS.items():
                out = ["--out", str(folder / system), "--json"]
                _, seconds, peak = called("adapt", source, target, *words, *out, folder=folder)
                told = costs[system]
                found.append(
                    {
                        "pair": name,
                        "system": system,
                        "expected (s)": f"{told['seconds']:.1f}",
                        "took (s)": f"{seconds:.1f}",
                        "expected (GB)": f"{told['gigabytes']:.2f}",
                        "had (GB)": f"{peak:.2f}",
                        "check itself (s)": f"{checking:.1f}",
                    }
                )
                print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    text = (
        "# What `ba3us check` expects, and what it took\n\n    python benchmarks/estimates.py DATA\n\n"
        f"Commit {commit()}, ba3us {__version__}, {os.cpu_count()} idle cores. Each command "
        "is a process of its own: what it took includes starting Python and torch, the report and, for a named "
        "system, the comparison with source-only.\n\n" + markdown(pd.DataFrame(rows(asked.data))) + "\n"
    )
    print(text)
    if asked.page:
        asked.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
