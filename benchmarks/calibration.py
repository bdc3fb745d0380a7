"""Does a stated error level hold? Real tasks, easy and hard; labels of the target are looked at afterwards.

    python benchmarks/calibration.py FEATURES  # train what runs/calibration has not got, and show figures
    python benchmarks/calibration.py FEATURES --page docs/results/calibration.md

FEATURES is the --root of ``ba3us bench``: PACS in ``hard``, and what ``ba3us embed`` made of Caltech-107 and
Office-Caltech10.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tables import markdown  # beside this file

from ba3us import __version__, bench
from ba3us.adapt import train
from ba3us.assess.calibration import Calibration, confidence, threshold_of
from ba3us.bench.jobs import Job, MethodRow, open_job
from ba3us.bench.study import commit

TASKS = {
    "caltech107-office10": "C->A,C->W,C->D",
    "office-caltech-10-5": "A->C,C->A,D->A,W->C",
    "pacs-7-4": "p->a,a->p,p->s,a->c,c->p,s->a",
}
LEVELS = (0.05, 0.1)
WAYS = ("the network's probability", "held-out source rows alone", "as served")


def kept_run(job: Job, folder: Path) -> tuple[np.ndarray, Calibration, str]:
    """Logits of the target, calibration and verdict of a run; trained unless it lies there."""
    task = job.task.replace("->", "")
    file = folder / f"{job.protocol} {task} {job.seed}.npz"
    if not file.is_file():
        print(file.stem, file=sys.stderr, flush=True)
        torch.set_num_threads(1)
        run, target = train(*open_job(job))
        said = json.dumps([run.calibration.packed(), run.verdict.outcome])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, logits=run.logits(target), said=said)
    with np.load(file) as found:
        packed, word = json.loads(str(found["said"]))
        return found["logits"], Calibration.unpacked(packed), word


def figures(logits: np.ndarray, calibration: Calibration, labels: np.ndarray) -> list[dict]:
    """What was kept and what of it was wrong, at every level and by every way to say confidence."""
    wrong, rows = logits.argmax(axis=1) != labels, []
    for way, temperature in zip(WAYS, (1.0, calibration.held_out, calibration.temperature)):
        sure = confidence(logits, temperature)
        for level in LEVELS:
            kept = sure >= threshold_of(sure, level)
            error = wrong[kept].mean() if kept.any() else 0.0
            rows.append({"way": way, "level": level, "kept": kept.mean(), "error": error})
    return rows


def collected(root: Path, folder: Path, seeds: int) -> pd.DataFrame:
    """A row per run, way and level."""
    rows = []
    for protocol, tasks in TASKS.items():
        study = bench.prepare(
            protocol, root, methods=[MethodRow("auto", "auto")], tasks=tasks, seeds=seeds, options={}
        )
        truth = {data.task: data.labels for data in study.datasets}
        for job in study.jobs:
            logits, calibration, word = kept_run(job, folder)
            labels = truth[job.task]
            about = {
                "protocol": protocol,
                "task": job.task,
                "seed": job.seed,
                "accuracy": (logits.argmax(axis=1) == labels).mean(),
                "kappa": calibration.kappa,
                "verdict": word,
                "promised": not calibration.cautions,
            }
            rows += [about | each for each in figures(logits, calibration, labels)]
    return pd.DataFrame(rows)


def overview(rows: pd.DataFrame) -> pd.DataFrame:
    """By whether the run warned, way and level: what was kept, and how often the level held."""
    lines = []
    for (promised, way, level), part in rows.groupby(["promised", "way", "level"], sort=False):
        held = (part["error"] <= part["level"]).sum()
        lines.append(
            {
                "warned": "no" if promised else "yes",
                "confidence": way,
                "level": f"{level:.0%}",
                "kept": f"{part['kept'].mean():.0%}",
                "wrong of these, mean": f"{part['error'].mean():.1%}",
                "worst run": f"{part['error'].max():.1%}",
                "the level held": f"{held} of {len(part)} runs",
            }
        )
    return pd.DataFrame(lines).sort_values("warned", kind="stable")


def by_task(rows: pd.DataFrame) -> pd.DataFrame:
    """What is served, means over seeds."""
    served, lines = rows[rows["way"] == WAYS[-1]], []
    for (protocol, task), part in served.groupby(["protocol", "task"], sort=False):
        line = {
            "protocol": protocol,
            "task": task,
            "accuracy": f"{part['accuracy'].mean():.1%}",
            "κ": f"{part['kappa'].mean():.2f}",
            "warned": f"{(~part['promised']).sum() // len(LEVELS)} of {len(part) // len(LEVELS)}",
        }
        for level in LEVELS:
            own = part[part["level"] == level]
            line[f"kept at {level:.0%}"] = f"{own['kept'].mean():.0%}"
            line[f"wrong of these ({level:.0%})"] = f"{own['error'].mean():.1%}"
        lines.append(line)
    return pd.DataFrame(lines)


def page(rows: pd.DataFrame, command: str) -> str:
    """The figures, in two tables."""
    made = f"Commit {commit()}, ba3us {__version__}, torch {torch.__version__}."
    seeds, tasks = rows["seed"].nunique(), rows[["protocol", "task"]].drop_duplicates().shape[0]
    words = (
        f"`auto`, preset `fast`, {tasks} tasks, seeds 0 to {seeds - 1}. *Kept* is the share of the target's "
        "rows that the table does not abstain from; *wrong of these* is known from labels that no run had. "
        "What the columns mean, and what follows: "
        "[Can I trust it?](../trust.md#how-sure-is-a-single-prediction). The rule was chosen with eight pairs "
        "of PACS in sight (p->a, p->c, a->p, s->p, c->a, a->s, p->s, c->s; seed 0), and with ResNet-50's "
        "features; all other tasks below were looked at once, and nothing was changed afterwards."
    )
    return (
        f"# Does a stated error level hold? Figures\n\n    {command}\n\n{made} {words}\n\n"
        f"## By whether the run warns that no level can be promised\n\n{markdown(overview(rows))}\n\n"
        f"## Every task, as served\n\n{markdown(by_task(rows))}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/calibration"), help="where runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    rows = collected(asked.root, asked.out, asked.seeds)
    print(overview(rows).to_string(index=False), by_task(rows).to_string(index=False), sep="\n\n")
    if asked.page:
        command = shlex.join(["python", "benchmarks/calibration.py", *sys.argv[1:]])
        asked.page.write_text(page(rows, command), encoding="utf-8")


if __name__ == "__main__":
    main()
