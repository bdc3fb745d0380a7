"""Every command of docs/reproducing.md from end to end on generated images, so that none fails on real ones.

    python benchmarks/rehearse.py FOLDER                      # all of them
    python benchmarks/rehearse.py FOLDER --only table3,figure4

The commands are read from the page and run in FOLDER with all their rows, tasks and seeds. What is changed:
pixels are made up (`generated_datasets.py`; Office31 and Office-Home with the right counts, of ImageNet and
Caltech-256 two images a class), updates are few and crops small, weights are random, and a small ResNet stands
for ResNet-50. VGG-16 is VGG-16, with its two layers of 4,096.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import generated_datasets
import pandas as pd
import timm
import torch
from safetensors.torch import save_file
from tables import markdown  # beside this file

from ba3us import __version__
from ba3us.bench.database import Database
from ba3us.bench.study import commit

PAGE = Path(__file__).parents[1] / "docs" / "reproducing.md"
PROPORTION = {"office31": 1.0, "office-home": 1.0, "imagenet-caltech": 1e-6}
SMALL = {"resnet50": "test_resnet", "vgg16": "vgg16"}
CHANGED = ["--device", "cpu", "--size", "32", "--workers", "2"]
SHORTER = {"table1": ["adda.source_steps=1"], "table2": ["adda.source_steps=1"]}  # stages that would be longer


def commands() -> list[list[str]]:
    """The first block of the page, word by word, without comments."""
    block = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def prepare(folder: Path) -> None:
    """Datasets and weights, unless they are there."""
    for protocol, proportion in PROPORTION.items():
        if not (folder / "data" / protocol).is_dir():
            generated_datasets.generate(protocol, folder / "data", fraction=proportion)
    for name in SMALL.values():
        if not (folder / f"{name}.safetensors").is_file():
            torch.manual_seed(0)
            save_file(timm.create_model(name).state_dict(), folder / f"{name}.safetensors")


def rehearsed(words: list[str], steps: int, seeds: int | None) -> list[str]:
    """A command as it is run here."""
    if "cuda" not in words:  # a drawing, or a count of files
        return words
    words = words[: words.index("--device")] + words[words.index("--device") + 2 :]
    name = SMALL["vgg16" if "table3" in words else "resnet50"]
    fewer = [] if seeds is None else ["--seeds", str(seeds)]
    if "table2" in words:  # of ImageNet and Caltech-256 there are two images a class
        fewer += ["--skip-count-check"]
    shorter = [word for each in SHORTER.get(words[2], ()) for word in ("--set", each)]
    seen = ["--backbone", name, "--weights", f"{name}.safetensors"]
    return [*words, *CHANGED, *seen, *fewer, *shorter, "--steps", str(steps)]


def runs(database: Path) -> pd.DataFrame:
    """What a database holds."""
    if not database.is_file():
        return pd.DataFrame({"outcome": []})
    with Database(database) as opened:
        return opened.table()


def held(database: Path) -> pd.DataFrame:
    """The runs of a database by protocol: systems × tasks × targets × seeds, and how many came to nothing."""
    rows = []
    for protocol, of in runs(database).groupby("protocol"):
        counts = {name: of[name].nunique() for name in ("label", "task", "variant", "seed")}
        failed = int((of["outcome"] != "ok").sum())
        rows.append({"protocol": protocol, **counts, "runs": len(of), "failed": failed})
    names = {"label": "systems", "task": "tasks", "variant": "targets", "seed": "seeds"}
    return pd.DataFrame(rows).rename(columns=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="tables and figures, comma-separated")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seeds", type=int, help="in place of the three of the protocols")
    parser.add_argument("--page", type=Path, help="write what came of it here")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    prepare(asked.folder)
    database, rows, failed = asked.folder / "runs" / "paper.sqlite", [], False
    for words in commands():
        if asked.only and not set(words) & set(asked.only.split(",")):
            continue
        call, before, start = rehearsed(words, asked.steps, asked.seeds), runs(database), time.time()
        done = subprocess.run([sys.executable, "-m", "ba3us", *call[1:]], cwd=asked.folder, check=False)
        new = runs(database).iloc[len(before) :]
        wrong = int((new["outcome"] != "ok").sum())
        failed |= bool(done.returncode or wrong)
        row = {
            "command": f"`{shlex.join(words)}`",
            "exit code": done.returncode,
            "new runs": len(new),
            "failed": wrong,
            "minutes": f"{(time.time() - start) / 60:.1f}",
        }
        rows.append(row)
        print(row, flush=True)
    text = (
        "# Rehearsal of the paper's commands\n\n"
        f"    {shlex.join(['python', 'benchmarks/rehearse.py', *sys.argv[1:]])}\n\n"
        f"ba3us {__version__}, commit {commit()}, torch {torch.__version__}. Generated images, {asked.steps} "
        "updates a run: that each command runs from end to end is all that is measured here. Runs that the "
        "database had already, of another command or of an earlier call, are not run again.\n\n"
        f"{markdown(pd.DataFrame(rows))}\n\nWhat the database holds:\n\n{markdown(held(database))}\n"
    )
    print(text)
    if asked.page:
        asked.page.write_text(text, encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
