"""Good files of every kind that the software reads, and what reads them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ba3us import PartialAdapter
from ba3us.bench.database import Database
from ba3us.cli.app import app
from ba3us.data.image_cache import open_images
from ba3us.data.images import read_class_names, read_images
from ba3us.run.spec import Spec
from ba3us.training import Callback

TRAINED = ("--method", "source-only", "--steps", "2", "--threads", "1")
SIDE = 8


class Victim(NamedTuple):
    """A file (relative to the folder that :func:`prepare` fills) and what reads it.

    `use` is given the folder and returns something to compare. Where `exact`, a file that is read after all
    must give what the undamaged one gives; else any content that makes sense is a file like another.
    """

    kind: str
    file: str
    use: Callable[[Path], Any]
    exact: bool = False


def rows(classes: int = 3, count: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clouds, one per class, and their labels."""
    g, y = np.random.default_rng(seed), np.arange(count) % classes
    return (4 * np.eye(classes, 5)[y] + g.standard_normal((count, 5))).astype(np.float32), y


def command(*arguments: str) -> None:
    """A command of ba3us in this process; its end is an exception unless all is well."""
    before, sys.argv = sys.argv, ["ba3us", *arguments]
    try:
        app(standalone_mode=False)
    finally:
        sys.argv = before


class Stop(Callback):
    """Interrupts a training after its first evaluation of the target."""

    def on_step(self, trainer: Any, step: Any) -> None:
        """As Ctrl-C would."""
        if step.number > 4:
            raise KeyboardInterrupt


def adapter(folder: Path, method: str = "source-only", callbacks: tuple[Callback, ...] = ()) -> PartialAdapter:
    """An estimator that keeps its state in the folder."""
    options = {"refresh_every": 2, "bottleneck": 4, "discriminator_hidden": 8} if method == "ba3us" else {}
    return PartialAdapter(
        method,
        steps=6,
        n_threads=1,
        checkpoint=folder / "state.ckpt",
        callbacks=callbacks,
        method_params=options,
    )


def prepare(folder: Path) -> None:
    """Fill a folder with good files."""
    x, y = rows()
    xt, _ = rows(2, 20, 1)
    names = np.array(["ant", "bee", "cat"])
    np.savez(folder / "s.npz", features=x, labels=y, class_names=names)
    np.savez_compressed(folder / "packed.npz", features=x, labels=y, class_names=names)
    np.savez(folder / "t.npz", features=xt, paths=np.array([f"{i}.png" for i in range(20)]))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", names[y])
    np.savez(folder / "two.npz", features=x + 0.5, labels=y, class_names=names)
    (folder / "names.txt").write_text("ant\nbee\ncat\n")
    (folder / "truth.csv").write_text("path,label\n" + "".join(f"{i}.png,{names[i % 2]}\n" for i in range(20)))
    (folder / "spec.yaml").write_text(
        "format: ba3us spec 1\nsource: s.npz\ntarget: t.npz\nmethod: ba3us\n"
        "method_params:\n  steps: 2\n  beta: 1.5\nselection: entropy\nseed: 3\nn_threads: 1\n"
    )
    (folder / "protocol.yaml").write_text(
        "title: toy\ndomains: {P: s.npz, Q: two.npz}\ntasks: [P->Q, Q->P]\ntarget: {classes: [ant, cat]}\n"
        "options: {steps: 2, batch_size: 4}\nexpected: {P: {ant: 10, bee: 10, cat: 10}}\nseeds: 1\n"
    )
    _images(folder / "photos")
    (folder / "list.txt").write_text(
        "".join(f"photos/{n}/{i}.png {k}\n" for k, n in enumerate("ab") for i in (0, 1))
    )
    torch.save({"weight": torch.zeros(2, 2)}, folder / "weights.pth")
    command(
        "adapt",
        str(folder / "s.npz"),
        str(folder / "t.npz"),
        "--steps",
        "2",
        "--out",
        str(folder / "run"),
        "--json",
    )
    command("bench", str(folder / "protocol.yaml"), "--methods", "source-only", "--workers", "1", "--json",
            "--out", str(folder / "runs.sqlite"))  # fmt: skip
    try:
        adapter(folder, "ba3us", (Stop(),)).fit(x, y, xt)
    except KeyboardInterrupt:
        (folder / "state.ckpt").rename(folder / "kept.ckpt")


def _images(folder: Path) -> None:
    from PIL import Image

    g = np.random.default_rng(0)
    for name in "ab":
        (folder / name).mkdir(parents=True)
        for number, suffix in enumerate(("png", "png", "jpg", "gif", "bmp", "webp", "tif")):
            Image.fromarray(g.integers(0, 255, (16, 20, 3), dtype=np.uint8)).save(
                folder / name / f"{number}.{suffix}"
            )


# --- what reads them ----------------------------------------------------------------------------------------


def adapted(source: str, *more: str) -> Callable[[Path], Any]:
    """``ba3us adapt`` from that file."""

    def use(folder: Path) -> Any:
        command("adapt", str(folder / source), str(folder / "t.npz"), "--out", str(folder / "out"), "--json",
                *TRAINED, *(str(folder / one) if "." in one else one for one in more))  # fmt: skip
        return (folder / "out" / "predictions.csv").read_bytes()

    return use


def predicted(data: str) -> Callable[[Path], Any]:
    """``ba3us predict`` of that file."""

    def use(folder: Path) -> Any:
        command("predict", str(folder / "run"), str(folder / data), "--out", str(folder / "out.csv"), "--json")
        return (folder / "out.csv").read_bytes()

    return use


def reported(folder: Path) -> None:
    """``ba3us report`` of the run."""
    command("report", str(folder / "run"), "--labels", str(folder / "truth.csv"), "--out",
            str(folder / "out.html"), "--json")  # fmt: skip


def resumed(folder: Path) -> Any:
    """A training that goes on from its state."""
    shutil.copy(folder / "kept.ckpt", folder / "state.ckpt")
    x, y = rows()
    xt, _ = rows(2, 20, 1)
    try:
        return adapter(folder, "ba3us").fit(x, y, xt).predict_proba(xt).tobytes()
    finally:
        (folder / "state.ckpt").unlink(missing_ok=True)  # the user's own file, as it was given


def understood(folder: Path) -> Any:
    """A spec as it is read, with every hyper-parameter."""
    spec = Spec.read(folder / "spec.yaml")
    return spec.method_options(), spec.kind


def checked(folder: Path) -> None:
    """A protocol whose data is compared with what it expects."""
    from ba3us import bench

    bench.check(folder / "protocol.yaml")


def stored(folder: Path) -> Any:
    """All that a database of runs holds."""
    with Database(folder / "runs.sqlite") as database:
        table = database.table()
        runs = [database.run(key) for key in database.outcomes()]
        spec = database.specs()
    figures = [k.predictions.tobytes() + k.probabilities.tobytes() + k.labels.tobytes() for k in runs]
    return table.drop(columns=["finished"]).to_csv(), figures, [k.history.to_csv() for k in runs], spec


def opened(path: str) -> Callable[[Path], Any]:
    """Images as they are decoded."""

    def use(folder: Path) -> Any:
        return open_images(read_images(folder / path), SIDE, cache_gb=0, workers=1).images.paths

    return use


def weighed(folder: Path) -> None:
    """A backbone with weights from a file; these do not fit, which is a sentence too."""
    from ba3us.nn.backbones import create_backbone

    create_backbone("test_resnet", folder / "weights.pth")


VICTIMS = [
    Victim("features, .npz", "s.npz", adapted("s.npz"), exact=True),
    Victim("features, .npz, compressed", "packed.npz", adapted("packed.npz"), exact=True),
    Victim("features, .npz, predicted", "t.npz", predicted("t.npz"), exact=True),
    Victim("features, .npy", "x.npy", predicted("x.npy")),
    Victim("labels, .npy", "y.npy", adapted("x.npy", "--labels", "y.npy")),
    Victim("model", "run/model.safetensors", predicted("t.npz"), exact=True),
    Victim("checkpoint", "kept.ckpt", resumed, exact=True),
    Victim("database", "runs.sqlite", stored, exact=True),
    Victim("spec", "spec.yaml", understood),
    Victim("protocol", "protocol.yaml", checked),
    Victim("list file", "list.txt", opened("list.txt")),
    Victim("class names", "names.txt", lambda folder: read_class_names(folder / "names.txt")),
    *[Victim(f"image, .{s}", f"photos/a/{n}.{s}", opened("photos"))
      for n, s in ((0, "png"), (2, "jpg"), (3, "gif"), (4, "bmp"), (5, "webp"), (6, "tif"))],
    Victim("backbone weights", "weights.pth", weighed),
    Victim("run: spec", "run/spec.yaml", reported),
    Victim("run: results", "run/results.json", predicted("t.npz"), exact=True),
    Victim("run: history", "run/history.csv", reported),
    Victim("run: evaluations", "run/evaluations.npz", reported),
    Victim("run: presence", "run/presence.csv", reported),
    Victim("run: predictions", "run/predictions.csv", reported),
    Victim("run: leaderboard", "run/leaderboard.csv", reported),
    Victim("labels for a report", "truth.csv", reported),
]  # fmt: skip
