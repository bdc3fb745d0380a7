"""Does `ba3us check` find what is wrong, and does it keep quiet where nothing is? Faults are planted here.

    python benchmarks/check.py DATA [--page docs/results/check.md] [--parts planted unknown labels clean]

DATA holds photos in ``office_caltech10/{amazon,webcam,dslr,caltech10}/CLASS`` and ``caltech101_outliers/CLASS``
(with them ``lists/caltech107.txt``), and features of PACS in ``hard``. Thresholds were chosen on the domains of
DESIGN; tables of the others are apart. Nothing in DATA is changed: planted folders are links and new files.
Rows of the tables are kept below --out: an interrupted measurement goes on, and parts can go side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from PIL import Image
from tables import markdown  # beside this file

from ba3us import __version__
from ba3us.bench.study import commit
from ba3us.check import check, domains
from ba3us.check.closeness import unknown_class
from ba3us.check.domains import MOST_TARGET, sample_source
from ba3us.data.domains import random_indices
from ba3us.data.files import read_features
from ba3us.data.images import read_images
from ba3us.embed import embed
from ba3us.nn.backbones import OFFLINE, create_backbone
from ba3us.run.spec import Spec

OFFICE, PACS, LARGE = (
    ("amazon", "caltech10", "webcam", "dslr"),
    ("photo", "art", "cartoon", "hasher"),
    "caltech107",
)
DESIGN = ("amazon", "caltech10", LARGE, "photo", "art")  # a pair of two of these is a pair of the design
PAIRS = [*itertools.permutations(OFFICE, 2), *((LARGE, one) for one in OFFICE if one != "caltech10")]
PAIRS += itertools.permutations(PACS, 2)
PLANTED = (("amazon", "caltech10"), ("dslr", "webcam"))
WHOLE = [("amazon", "caltech10"), (LARGE, "webcam"), ("amazon", "dslr"), ("webcam", "dslr")]  # hashed and all
WHOLE += itertools.permutations(PACS, 2)
TRIALS = 6  # of a wrong folder, per source
PARTS = ["planted", "unknown", "labels", "clean"]
HALVES = 3  # targets of a random half of the classes, per pair


def designed(pair: tuple[str, str]) -> bool:
    return all(name in DESIGN for name in pair)


# --- domains ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the domains lie."""

    root: Path

    def path(self, name: str) -> Path:
        if name in PACS:
            return self.root / "hard" / f"pacs_{name}.npz"
        return self.root / "lists/caltech107.txt" if name == LARGE else self.root / "office_caltech10" / name

    def spec(self, source: str, target: str) -> Spec:
        listed = source == LARGE
        return Spec(
            source=str(self.path(source)),
            target=str(self.path(target)),
            root=str(self.root) if listed else None,
            classes=str(self.root / "lists/caltech107_classes.txt") if listed else None,
        )

    @cache  # noqa: B019
    def vectors(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Features, and labels as names."""
        if name in PACS:
            found = read_features(self.path(name))
        else:
            root = self.root if name == LARGE else None
            found = embed(read_images(self.path(name), root=root), create_backbone(OFFLINE)).content
        return found.features.astype(np.float32), found.named_labels(name)


# --- clean pairs, and a class taken out of the source ---------------------------------------------------------


def sight(x: np.ndarray, y: np.ndarray, xt: np.ndarray) -> tuple[domains.Sight, np.ndarray]:
    """What check sees of a target, and the names of the classes."""
    names, labels = np.unique(y, return_inverse=True)
    rows, other = sample_source(labels), random_indices(len(xt), MOST_TARGET)
    source, target = domains.directions(x[rows], xt[other])
    return domains.Sight.of(target, source, labels[rows], len(names)), names


def said(found: domains.Sight, names: np.ndarray) -> str:
    """The topic of what is said of it."""
    rows = [str(row) for row in range(len(found.margin))]
    vectors = SimpleNamespace(classes=names, target_names=rows)
    known = SimpleNamespace(vectors=vectors, closeness=(None, found, None))
    topics = [finding.topic for finding in unknown_class(known)]
    return topics[0] if topics else "nothing"


def of_pair(data: Data, *pair: str) -> dict:
    """Trials without and with an unknown class; a class that is taken out of the source is unknown."""
    (x, y), (xt, yt) = (data.vectors(name) for name in pair)
    rng = np.random.default_rng(0)
    present = np.unique(yt)
    clean, taken = [], []
    for number in range(1 + HALVES):
        some = present if number == 0 else rng.permutation(present)[: len(present) // 2 + 1]
        here = np.isin(yt, some)
        found, names = sight(x, y, xt[here])
        if number == 0:
            accuracy = np.mean(names[found.predicted] == yt[random_indices(len(yt), MOST_TARGET)])
            kappa, seen = found.kappa, len(found.classes())
        clean.append(said(found, names))
        for one in some if number == 0 else some[:1]:
            taken.append(said(*sight(x[y != one], y[y != one], xt[here])))
    counts = {
        "pair": " → ".join(pair),
        "accuracy": f"{100 * accuracy:.0f}",
        "κ": f"{kappa:.2f}",
        "classes seen, of": f"{seen}, {len(present)}",
    }
    for title, trials in (("clean", clean), ("with an unknown class", taken)):
        for topic in ("unknown class", "hard shift", "nothing"):
            counts[f"{title}: {topic}"] = f"{trials.count(topic)} of {len(trials)}"
    return counts


# --- labels -------------------------------------------------------------------------------------------------


def labels_of(data: Data, name: str) -> dict:
    """Clean classes, folders that hold another class's images, and folders that do so in part."""
    x, y = data.vectors(name)
    rows = sample_source(np.unique(y, return_inverse=True)[1])
    x, y = x[rows], y[rows]
    rng = np.random.default_rng(0)
    clean = topics(x, y)
    whole, part = 0, 0
    trials = [tuple(rng.permutation(np.unique(y))[:2]) for _ in range(TRIALS)]
    for one, other in trials:
        own, theirs = np.flatnonzero(y == one), rng.permutation(np.flatnonzero(y == other))
        wrong = y.copy()
        wrong[theirs[: len(theirs) // 2]] = one
        keep = y != one
        whole += ("same content", *sorted((one, other))) in topics(x[keep], wrong[keep])
        wrong, out = y.copy(), rng.permutation(own)[: round(0.3 * len(own))]
        wrong[theirs[: min(len(out), len(theirs) // 2)]] = one
        keep = np.ones(len(y), dtype=bool)
        keep[out] = False
        part += any(found[1:] == (one, other) for found in topics(x[keep], wrong[keep]))
    return {
        "source": name,
        "classes": len(np.unique(y)),
        "clean: same content": sum(found[0] == "same content" for found in clean),
        "clean: mixed class": sum(found[0] == "mixed class" for found in clean),
        "folder of another class: same content": f"{whole} of {len(trials)}",
        "30 % of another class: mixed class": f"{part} of {len(trials)}",
    }


def topics(x: np.ndarray, y: np.ndarray) -> list[tuple[str, str, str]]:
    """(topic, class, the other class) of what is said of labels."""
    names, labels = np.unique(y, return_inverse=True)
    source, _ = domains.directions(x, x[:1])
    found = domains.Confusion.of(source, labels, len(names))
    kinds = (("same content", found.same()), ("mixed class", found.mixed()))
    return [(topic, str(names[a]), str(names[b])) for topic, pairs in kinds for a, b in pairs]


# --- whole checks ---------------------------------------------------------------------------------------------


def clean_folders(data: Data, *pair: str) -> dict:
    """All that is said of a pair as it is."""
    report = check(data.spec(*pair), cost=False)
    told = [f"{found.level}: {found.topic} ({found.count})" for found in report.findings]
    apart = report.facts["told_apart"]
    return {
        "pair": " → ".join(pair),
        "told apart": f"{100 * apart:.0f} %",
        "findings": "; ".join(told) or "none",
    }


def plant(data: Data, source: str, target: str, folder: Path) -> dict[str, list[str]]:
    """Two folders with every fault; returns what was planted."""
    rng = np.random.default_rng(0)
    for domain, name in (("source", source), ("target", target)):
        for file in sorted(data.path(name).rglob("*.jpg")):
            new = folder / domain / file.parent.name / file.name
            new.parent.mkdir(parents=True, exist_ok=True)
            new.symlink_to(file.resolve())
    photos = {domain: sorted((folder / domain).rglob("*.jpg")) for domain in ("source", "target")}
    gone, one, other = rng.permutation([path.name for path in (folder / "source").iterdir()])[:3]
    for file in photos["source"]:
        if file.parent.name in (gone, one):
            file.unlink()
    (folder / "source" / gone).rmdir()
    moved = rng.permutation(sorted((folder / "source" / other).iterdir()))
    for file in moved[: len(moved) // 2]:
        file.rename(folder / "source" / one / f"moved_{file.name}")
    left = [file for file in sorted((folder / "source").rglob("*.jpg")) if file.parent.name not in (one, other)]
    chosen = rng.permutation(left)[:25]
    twins = []
    for number, file in enumerate(chosen[:20]):
        twin = folder / "target" / file.parent.name / f"copy_{number}.jpg"
        twin.parent.mkdir(exist_ok=True)
        copy(file, twin, number % 4)
        twins.append(twin.relative_to(folder / "target").as_posix())
    cut = [*chosen[20:], *rng.permutation(photos["target"])[:5]]
    for file in cut:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content[: int(0.4 * len(content))])
    # the class whose images were replaced is unknown to the source as well
    return {
        "unknown": [str(gone), str(one)],
        "same": sorted([str(one), str(other)]),
        "twins": twins,
        "cut": cut,
    }


def copy(file: Path, twin: Path, kind: int) -> None:
    """The file itself, encoded again, at half the size, or at one and a half times the size."""
    if kind == 0:
        twin.write_bytes(file.read_bytes())
        return
    with Image.open(file) as image:
        times = {1: 1.0, 2: 0.5, 3: 1.5}[kind]
        size = tuple(max(8, round(times * side)) for side in image.size)
        image.convert("RGB").resize(size).save(twin, quality={1: 50, 2: 70, 3: 75}[kind])


def planted(data: Data, source: str, target: str) -> dict:
    """What the command says of two folders with every fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = plant(data, source, target, folder)
        call = [sys.executable, "-m", "ba3us", "check", "source", "target", "--json", "--no-cost"]
        done = subprocess.run(
            call,
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | {"BA3US_CACHE": str(folder / "cache")},
        )
        if done.returncode:
            raise SystemExit(done.stderr)
    found = {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}
    across = [item.partition(" = ")[2] for item in found.get("duplicates across", {"items": ()})["items"]]
    unread = sum(found.get(f"unreadable in {domain}", {"count": 0})["count"] for domain in ("source", "target"))
    same = [f for f in json.loads(done.stdout)["findings"] if f["topic"] == "same content"]
    named = [f for f in same if f["text"].startswith(" and ".join(truth["same"]))]
    lost = found.get("unknown class", {"items": ()})["items"]
    right = sum(item.startswith(f"{name}/") for item in lost for name in truth["unknown"])
    return {
        "pair": f"{source} → {target}",
        "planted copies found": f"{len(set(across) & set(truth['twins']))} of 20",
        "other pairs called copies": len(set(across) - set(truth["twins"])),
        "truncated files found": f"{unread} of 10",
        "mislabelled folder named": "yes" if named else "no",
        "other folders named": len(same) - len(named),
        "called of an unknown class": len(lost),
        "of which are": f"{right} ({' and '.join(truth['unknown'])})",
    }


# --- the page -------------------------------------------------------------------------------------------------


def kept(out: Path, do: Callable[..., dict], data: Data, *names: str) -> dict:
    """A row of a table, measured only if it is not there yet."""
    path = out / f"{do.__name__}-{'-'.join(names)}.json"
    if not path.is_file():
        row = do(data, *names)
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
        print(row, file=sys.stderr, flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def tables(data: Data, out: Path, parts: list[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """A title and its rows, for every part that is asked for."""

    def rows(do: Callable[..., dict], calls: Iterable[tuple[str, ...]]) -> pd.DataFrame:
        return pd.DataFrame([kept(out, do, data, *names) for names in calls])

    if "planted" in parts:
        yield "Every fault at once", rows(planted, PLANTED)
    for title, wanted in (("put aside", False), ("of the design", True)):
        if "unknown" in parts:
            yield f"Unknown classes, pairs {title}", rows(of_pair, (p for p in PAIRS if designed(p) == wanted))
        if "labels" in parts:
            names = [(name,) for name in (*OFFICE, LARGE, *PACS) if (name in DESIGN) == wanted]
            yield f"Labels, sources {title}", rows(labels_of, names)
        if "clean" in parts:
            yield (
                f"Pairs as they are, {title}",
                rows(clean_folders, (p for p in WHOLE if designed(p) == wanted)),
            )


def page(found: Iterable[tuple[str, pd.DataFrame]], command: str) -> str:
    """All tables, for docs/results."""
    parts = [f"# What `ba3us check` finds: figures\n\n    {command}\n\nCommit {commit()}, ba3us {__version__}."]
    parts.append("What the columns mean, and what follows: [Before training](../check.md).")
    for title, rows in found:
        parts += [f"## {title}", markdown(rows)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=Path("runs/check"), help="where rows are kept")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    found = list(tables(Data(asked.data.resolve()), asked.out, asked.parts))
    text = page(found, "python benchmarks/check.py DATA --page docs/results/check.md")
    print(text)
    if asked.page:
        asked.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
