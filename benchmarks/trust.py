"""Can the automatic choice be trusted? Many real variants, half of them put aside, every run stored.

    python benchmarks/trust.py FEATURES design  # train what runs/trust.sqlite has not got, and show figures
    python benchmarks/trust.py FEATURES both --page docs/results/trust.md docs/figures/trust.png

FEATURES is the --root of ``ba3us bench``: PACS in ``hard``, ResNet-50's features in ``resnet50``, and what
``ba3us embed`` made of Office-Caltech10 and Caltech-107. A variant is a task with a choice of target classes;
it is put aside if the number of its task plus that of its target is odd, in the protocol's order.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tables import markdown  # beside this file

from ba3us import __version__, bench
from ba3us.assess.presence import MOST_UNCERTAINTY, presence_uncertainty
from ba3us.assess.verdict import ADAPTED, NEAR, Agreement, judge_auto
from ba3us.bench.database import Database
from ba3us.bench.jobs import MethodRow
from ba3us.bench.protocol import read_protocol
from ba3us.bench.study import commit

EASY = ("caltech107-office10", "office-caltech-10-5")
RESNET = ("caltech107-office10-resnet50", "office-caltech-10-5-resnet50")
PROTOCOLS = (*EASY, *RESNET, "pacs-targets", "digits")
FAST, BEST = (MethodRow(f"auto, {preset}", "auto", {"preset": preset}) for preset in ("fast", "best"))
OF_BEST = (*EASY, RESNET[0], "pacs-targets")  # of the last, the 22 hard tasks
OF_22 = {
    "4": " ".join(task.name for task in read_protocol("pacs-7-4").tasks),
    "2": " ".join(task.name for task in read_protocol("pacs-7-2").tasks),
    "7": " ".join(task.name for task in read_protocol("pacs-7-7").tasks),
}  # the 22 hard tasks
HALVES = {"design": 0, "aside": 1}
NAMES = {"design": "Half that thresholds were chosen on", "aside": "Half that was put aside, looked at once"}


def studies(root: Path, half: str, system: MethodRow, protocols: Sequence[str], seeds: int):
    """A study for each protocol and target, with the tasks of this half."""
    for name in protocols:
        protocol = read_protocol(name)
        for number, subset in enumerate(protocol.targets):
            tasks = [t.name for i, t in enumerate(protocol.tasks) if (i + number) % 2 == HALVES[half]]
            if system is BEST and name == "pacs-targets":
                tasks = [task for task in tasks if task in OF_22.get(subset.name, "").split()]
            if tasks:
                yield bench.prepare(
                    name,
                    root,
                    methods=[system],
                    tasks=",".join(tasks),
                    variants=subset.name or None,
                    seeds=seeds,
                    options={},
                )


def collected(
    root: Path, half: str, system: MethodRow, protocols, seeds: int, out: Path, workers: int, kept: bool
) -> pd.DataFrame:
    """A row per run, with what it said of itself; trains what is not there, unless only the `kept` count."""
    parts = []
    for study in studies(root, half, system, protocols, seeds):
        if kept:
            with Database(out) as database:
                rows = database.table()
            rows = rows[rows["key"].isin({job.key for job in study.jobs})]
        else:
            rows = bench.run(study, out, workers, show=True)
        parts.append(rows)
    rows = pd.concat(parts, ignore_index=True)
    with Database(out) as database:
        said = [judged(database, row) for row in rows.itertuples()]
    return pd.concat([rows, pd.DataFrame(said)], axis=1)


def judged(database: Database, row) -> dict:
    """Verdict and classes of an automatic run beside the truth."""
    if row.outcome != "ok" or row.method != "auto":
        return {}
    stored = database.run(row.key)
    plain, adapted, _ = stored.predictions == stored.labels
    figures = stored.summary["verdict"]["figures"]
    own, base = (
        Agreement(figures[f"kappa{of}"], figures[f"effective_classes{of}"]) for of in ("", "_source_only")
    )
    said = judge_auto(
        "weighted average", own, base, figures["changed"]
    )  # by the rule of today, which may be a later one
    served = adapted if said.model_used == ADAPTED else plain
    classes = pd.DataFrame(stored.summary["classes"])
    truth = np.bincount(stored.labels, minlength=len(classes)) / len(stored.labels)
    there, call = truth > 0, classes["present"].to_numpy()
    judged_by = (own.kappa, figures["changed"]) if said.model_used == ADAPTED else (base.kappa, 0.0)
    # kept runs may be older than this bound
    if presence_uncertainty(judged_by[0], NEAR, judged_by[1]) > MOST_UNCERTAINTY:
        call = np.where(call == "present", "uncertain", call)
    return {
        "plain": plain.mean(),
        "adapted": adapted.mean(),
        "served": served.mean(),
        "outcome": said.outcome,
        "kappa_plain": base.kappa,
        "kappa": own.kappa,
        "changed": figures["changed"],
        "right": int(((call == "present") & there).sum()),
        "false": int(((call == "present") & ~there).sum()),
        "missed": int(((call == "absent") & there).sum()),
        "uncertain": float((call == "uncertain").mean()),
        "covered": float(((classes["low"] <= truth + 1e-9) & (truth <= classes["high"] + 1e-9)).mean()),
    }


# --- the page -------------------------------------------------------------------------------------------------


def by_variant(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, in per cent."""
    auto = rows[rows["method"] == "auto"].assign(variant=lambda r: r["variant"].fillna("").astype(str))
    keys = ["label", "protocol", "variant", "task"]
    found = auto.groupby(keys).agg(
        seeds=("seed", "size"),
        plain=("plain", "mean"),
        adapted=("adapted", "mean"),
        served=("served", "mean"),
        helped=("word", lambda words: np.mean(words == "helped")),
        kappa_plain=("kappa_plain", "mean"),
        kappa=("kappa", "mean"),
        right=("right", "sum"),
        false=("false", "sum"),
        missed=("missed", "sum"),
        unsure=("uncertain", "mean"),
        covered=("covered", "mean"),
    )
    for column in ("plain", "adapted", "served", "uncertain", "covered"):
        found[column] *= 100
    found = found.assign(gain=found["served"] - found["plain"], would=found["adapted"] - found["plain"])
    return found.reset_index()


def groups(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The sets of variants that goals are set for."""
    hard = found[found["protocol"] == "pacs-targets"]
    of_22 = pd.Series(
        [t in OF_22.get(v, "").split() for v, t in zip(hard["variant"], hard["task"])],
        index=hard.index,
        dtype=bool,
    )
    return {
        "easy, Lite0": found[found["protocol"].isin(EASY)],
        "Caltech-107, ResNet-50": found[found["protocol"] == RESNET[0]],
        "Office-Caltech, ResNet-50": found[found["protocol"] == RESNET[1]],
        "hard, the 22 tasks": hard[np.array(of_22, dtype=bool)],
        "hard, all": hard,
        "digits": found[found["protocol"] == "digits"],
    }


def overview(found: pd.DataFrame) -> pd.DataFrame:
    """A row per system and set of variants."""
    lines = []
    for label, own in found.groupby("label"):
        for name, part in groups(own).items():
            if not len(part):
                continue
            called = 2 * part["right"].sum() + part["false"].sum() + part["missed"].sum()
            gained, lost = part["would"] > 2, part["would"] < -1
            lines.append(
                {
                    "system": label,
                    "variants": f"{name} ({len(part)})",
                    "source-only": f"{part['plain'].mean():.1f}",
                    "adapted": f"{part['adapted'].mean():.1f}",
                    "served": f"{part['model_used'].mean():.1f}",
                    "served > 1 below": f"{(part['gain'] < -1).sum()}",
                    "worst": f"{part['gain'].min():+.1f}",
                    "helped, where it gained > 2": f"{(part['helped'] > 0.5)[gained].sum()} of {gained.sum()}",
                    "helped, where it lost > 1": f"{(part['helped'] > 0.5)[lost].sum()} of {lost.sum()}",
                    "F1 of called classes": f"{2 * part['right'].sum() / max(1, called):.3f}",
                    "uncertain": f"{part['unsure'].mean():.0f} %",
                    "intervals cover": f"{part['covered'].mean():.0f} %",
                }
            )
    return pd.DataFrame(lines)


def single(found: pd.DataFrame) -> pd.DataFrame:
    """Every variant, the worst first."""
    ordered = found.sort_values("gain")
    return pd.DataFrame(
        {
            "system": ordered["label"],
            "protocol": ordered["protocol"],
            "task": ordered["task"],
            "target": ordered["variant"],
            "source-only": ordered["plain"].map("{:.1f}".format),
            "adapted": ordered["adapted"].map("{:.1f}".format),
            "served": ordered["served"].map("{:.1f}".format),
            "κ source-only": ordered["kappa_plain"].map("{:.2f}".format),
            "κ chosen": ordered["kappa"].map("{:.2f}".format),
            "helped": [f"{round(h * n)} of {n}" for h, n in zip(ordered["helped"], ordered["seeds"])],
        }
    )


def draw(found: pd.DataFrame, path: Path) -> None:
    """What adapting would have changed, against what was said of it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    axes.axhline(0, color="0.6", linewidth=0.8)
    helped = found["helped"] > 0.5
    kinds = (
        ("helped", "o", "#0072b2", helped),
        ("no evidence: source-only is served", "x", "#d55e00", ~helped),
    )
    for name, marker, colour, rows in kinds:
        part = found[rows]
        look = {"s": 22, "marker": marker, "color": colour, "linewidths": 1.2}
        axes.scatter(part["kappa_plain"], part["would"], label=name, **look)
    axes.set_xlabel("κ of neighbours, source-only")
    axes.set_ylabel("true gain of what was adapted (points)")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def page(halves: dict[str, pd.DataFrame], command: str) -> str:
    """Both halves, apart."""
    made = f"Commit {commit()}, ba3us {__version__}, torch {torch.__version__}."
    words = "What the columns mean, and what follows from them: [Can I trust it?](../trust.md)."
    parts = [f"# Can the automatic choice be trusted: figures\n\n    {command}\n\n{made} {words}"]
    for name, found in halves.items():
        parts += [f"## {name}", markdown(overview(found))]
    for name, found in halves.items():
        parts += [f"## Every variant: {name}", markdown(single(found))]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("half", choices=[*HALVES, "both"])
    parser.add_argument("--out", type=Path, default=Path("runs/trust.sqlite"))
    parser.add_argument("--seeds", type=int, default=3, help="of the preset fast")
    parser.add_argument("--best-seeds", type=int, default=1, help="of the preset best")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--kept", action="store_true", help="train nothing, show what there is")
    parser.add_argument("--page", nargs=2, type=Path, metavar=("PAGE", "PICTURE"))
    asked = parser.parse_args()
    halves = {}
    for half in HALVES if asked.half == "both" else [asked.half]:
        how = {"out": asked.out, "workers": asked.workers, "kept": asked.kept}
        fast = collected(asked.root, half, FAST, PROTOCOLS, asked.seeds, **how)
        best = collected(asked.root, half, BEST, OF_BEST, asked.best_seeds, **how)
        halves[NAMES[half]] = by_variant(pd.concat([fast, best], ignore_index=True))
        print(overview(halves[NAMES[half]]).to_string(index=False))
    if asked.page:
        command = shlex.join(["python", "benchmarks/trust.py", *sys.argv[1:]])
        asked.page[0].write_text(page(halves, command), encoding="utf-8")
        draw(pd.concat(halves.values()), asked.page[1])


if __name__ == "__main__":
    main()
