"""Can the automatic choice be trusted? Many real variants, half of them put aside, every run kept.

    python benchmarks/trust.py FEATURES design --out runs/trust.sqlite     # train what is missing
    python benchmarks/trust.py FEATURES both --page docs/results/trust.md  # and write page and picture

FEATURES is the --root of ``ba3us bench``: PACS in ``hard``, ResNet-50's features in ``resnet50``, and what
``ba3us embed`` made of Office-Caltech10 and Caltech-107. A variant is a task with a choice of target classes;
it is put aside if the number of its task plus that of its target is odd, in the protocol's order.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from ba3us import bench
from ba3us.bench.database import Database
from ba3us.bench.jobs import System
from ba3us.bench.protocol import read_protocol

EASY = ("caltech107-office10", "office-caltech-10-5")
RESNET = ("caltech107-office10-resnet50", "office-caltech-10-5-resnet50")
PROTOCOLS = (*EASY, *RESNET, "pacs-targets", "digits")
SYSTEMS = (
    System("source-only", "source-only", {"steps": 300}),
    System("auto, fast", "auto", {"preset": "fast"}),
    System("auto, best", "auto", {"preset": "best"}),
)
HALVES = {"design": (0,), "aside": (1,), "both": (0, 1)}


def studies(root: Path, half: str, systems: list[System], protocols: list[str], seeds: int):
    """A study for each protocol and target, with the tasks of this half."""
    for name in protocols:
        protocol = read_protocol(name)
        for number, subset in enumerate(protocol.targets):
            tasks = [t.name for i, t in enumerate(protocol.tasks) if (i + number) % 2 in HALVES[half]]
            if tasks:
                yield bench.prepare(
                    name,
                    root,
                    methods=systems,
                    tasks=",".join(tasks),
                    variants=subset.name or None,
                    seeds=seeds,
                    options={},
                )


def collected(
    root: Path, half: str, systems: list[System], protocols: list[str], seeds: int, out: Path, workers: int
):
    """A row per run, with what it said of itself; trains what is not there."""
    parts = []
    for study in studies(root, half, systems, protocols, seeds):
        rows = bench.run(study, out, workers, show=True)
        order = {task.name: i for i, task in enumerate(read_protocol(study.protocol.name).tasks)}
        rows["place"] = rows["task"].map(order)
        parts.append(rows)
    rows = pd.concat(parts, ignore_index=True)
    with Database(out) as database:
        said = [judged(database, row) for row in rows.itertuples()]
    return pd.concat([rows, pd.DataFrame(said)], axis=1)


def judged(database: Database, row) -> dict:
    """Verdict and classes of an automatic run beside the truth."""
    if row.outcome != "ok" or row.method != "auto":
        return {}
    kept = database.kept(row.key)
    plain, adapted, served = kept.predictions == kept.labels
    classes = pd.DataFrame(kept.said["classes"])
    truth = np.bincount(kept.labels, minlength=len(classes)) / len(kept.labels)
    there, call = truth > 0, classes["present"].to_numpy()
    return {
        "plain": plain.mean(),
        "adapted": adapted.mean(),
        "served": served.mean(),
        "word": kept.said["verdict"]["word"],
        "kappa_plain": kept.said["verdict"]["figures"]["kappa_source_only"],
        "kappa": kept.said["verdict"]["figures"]["kappa"],
        "changed": kept.said["verdict"]["figures"]["changed"],
        "right": int(((call == "yes") & there).sum()),
        "false": int(((call == "yes") & ~there).sum()),
        "missed": int(((call == "no") & there).sum()),
        "unsure": float((call == "unsure").mean()),
        "covered": float(((classes["low"] <= truth + 1e-9) & (truth <= classes["high"] + 1e-9)).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("half", choices=HALVES)
    parser.add_argument("--out", type=Path, default=Path("runs/trust.sqlite"))
    parser.add_argument("--systems", default=",".join(s.label.split(", ")[-1] for s in SYSTEMS))
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    systems = [s for s in SYSTEMS if s.label.split(", ")[-1] in asked.systems.split(",")]
    rows = collected(
        asked.root, asked.half, systems, asked.protocols.split(","), asked.seeds, asked.out, asked.workers
    )
    if asked.csv:
        rows.to_csv(asked.csv, index=False)


if __name__ == "__main__":
    main()
