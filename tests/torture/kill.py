"""Kill anywhere: commands are ended by SIGKILL at random places, go on, and must come to the very same end.

``python -m tests.torture.kill [KILLS [SCENES THAT BEGIN SO]]`` (100). A parent that has imported everything
forks a process per command, so that a kill costs no start-up. Half of the kills come after a random time, half
at a random file operation (opening for writing, renaming, removing, making a folder), as writing is short.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image

from ba3us.bench.database import Database
from ba3us.cli import main as command
from ba3us.run import storage as files
from ba3us.run.run import Run
from ba3us.training import checkpoints

_WRITES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "ctypes.dlsym", "shutil.rmtree")
_PATIENCE = 600
_MINUTES = float(os.environ.get("MINUTES", "20"))  # for all scenes; a slow machine makes fewer kills
_ALIKE = (files.MODEL, files.HISTORY, files.EVALUATIONS, files.PREDICTIONS, files.PRESENCE)
_TIMES = ("seconds", "finished", "resumed", "checksum")  # of a run, which may differ
_FEW = ["--threads", "1", "--set", "batch_size=16"]


class WrongError(AssertionError):
    """What a kill must not lead to."""


# --- processes ------------------------------------------------------------------------------------------------


def started(
    scene: Scene, more: list[str], folder: Path, die_at: int | None = None, count: Path | None = None
) -> int:
    """A process that runs a command, and kills itself at the file operation of that number."""
    pid = os.fork()
    if pid:
        return pid
    seen = 0

    def count_write(event: str, given: tuple) -> None:
        nonlocal seen
        if event in _WRITES or (event == "open" and isinstance(given[2], int) and given[2] & os.O_CREAT):
            seen += 1
            if seen == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        os.chdir(folder)
        if not scene.workers:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # candidates of a choice in this process
        said = os.open("said.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv = ["ba3us", *scene.arguments, *more]
        sys.addaudithook(count_write)
        command()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    if count is not None:
        count.write_text(str(seen))
    sys.stdout.flush()
    os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """A process's exit code (negative: a signal), or None if it still runs after so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def whole(scene: Scene, folder: Path) -> tuple[float, int]:
    """Run a command to its end; seconds and file operations."""
    start, count = time.monotonic(), folder / "count"
    code = ended(started(scene, [], folder, count=count), _PATIENCE)
    if code != 0:
        raise WrongError(f"{scene.arguments} ended with {code}: {(folder / 'said.txt').read_text()[-2000:]}")
    return time.monotonic() - start, int(count.read_text())


# --- what is killed -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A command, how it goes on, and what must hold after a kill and in the end."""

    name: str
    share: int  # of the kills
    arguments: list[str]
    readable: Callable[[Path], None]
    alike: Callable[[Path, Path], None]
    resume: list[str] = field(default_factory=list)
    workers: bool = False  # processes of its own, which lose their parent


def readable_run(folder: Path) -> None:
    """A run directory is a run, the state of one, or not there."""
    out = folder / "out"
    files.check_free(out, overwrite=True, resume=True)
    if out.is_dir() and files.is_run(out):
        Run.load(out)
    elif files.state_file(out).is_file():
        checkpoints.load(files.state_file(out))


def same_run(folder: Path, reference: Path) -> None:
    """Weights, predictions and tables are the reference's bit for bit; nothing else is left."""
    one, other = folder / "out", reference / "out"
    left = [p.name for p in folder.iterdir() if p.name.startswith(".")] + (
        ["checkpoints"] * (one / "checkpoints").exists()
    )
    if left:
        raise WrongError(f"left behind: {left}")
    for name in _ALIKE:
        if (one / name).read_bytes() != (other / name).read_bytes():
            raise WrongError(f"{name} differs")
    specs = [yaml.safe_load((run / files.SPEC).read_text()) for run in (one, other)]
    for spec in specs:
        del spec["source"], spec["target"]  # each has its own
    if specs[0] != specs[1]:
        raise WrongError(f"spec.yaml differs: {specs[0]} is not {specs[1]}")
    results = [json.loads((run / files.RESULTS).read_text()) for run in (one, other)]
    results = [{k: v for k, v in result.items() if k not in _TIMES} for result in results]
    if results[0] != results[1]:
        raise WrongError(f"results.json differs: {results[0]} is not {results[1]}")
    one_board, other_board = (Run.load(run).leaderboard for run in (one, other))
    if one_board is None or other_board is None:
        alike = one_board is other_board
    else:
        alike = one_board.equals(other_board)
    if not alike:
        raise WrongError("the leaderboard differs")


def whole_cache(folder: Path) -> None:
    """No half-written shard is left once a command has ended well."""
    names = [path.name for path in (folder / "cache").rglob("*") if path.is_file()]
    stems = {
        suffix: {n.removesuffix(suffix) for n in names if n.endswith(suffix)} for suffix in (".rows", ".keys")
    }
    if any(n.endswith(".part") for n in names) or stems[".rows"] != stems[".keys"]:
        raise WrongError(f"the cache holds {sorted(names)}")


def readable_database(folder: Path) -> None:
    """A database opens, is sound and holds only whole runs."""
    path = folder / "out.sqlite"
    if path.exists():
        with Database(path) as database:
            for key, outcome in database.outcomes().items():
                if outcome == "ok":
                    database.run(key)
        with closing(sqlite3.connect(path)) as connection:  # else it stays open until garbage is collected
            if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise WrongError("the database is damaged")


def same_table(folder: Path, reference: Path) -> None:
    """The same rows, predictions and histories; no journal is left."""
    left = [p.name for p in folder.iterdir() if p.name.startswith((".", "out.sqlite-"))]
    if left:
        raise WrongError(f"left behind: {left}")
    tables = []
    for place in (folder, reference):
        with Database(place / "out.sqlite") as database:
            table = database.table().drop(columns=["seconds", "cpu_seconds", "finished"])
            kept = {key: database.run(key) for key in table["key"]}
            tables.append((table.sort_values("key").reset_index(drop=True), kept))
    (one, ours), (other, theirs) = tables
    if not one.equals(other):
        raise WrongError("the table differs")
    for key in ours:
        for name in ("predictions", "probabilities", "labels"):
            if not np.array_equal(getattr(ours[key], name), getattr(theirs[key], name)):
                raise WrongError(f"{name} of {key} differ")
        if not ours[key].history.equals(theirs[key].history):
            raise WrongError(f"the history of {key} differs")


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The address of a cluster of one node, in processes of its own."""
    script = (
        "from ray.cluster_utils import Cluster\n"
        "made = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})\n"
        "print(made.address, flush=True)\ninput()\nmade.shutdown()\n"
    )
    head = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert head.stdout is not None
    lines = (line.strip() for line in head.stdout)
    try:
        yield next(line for line in lines if re.fullmatch(r"[\d.]+:\d+", line))
    finally:
        head.communicate("\n")


def scenes(address: str) -> list[Scene]:
    """All of them; the shares add up to 100."""
    features, photos = ["adapt", "s.npz", "t.npz", "--out", "out"], ["adapt", "labelled", "new", "--out", "out"]
    toy = ["--backbone", "efficientnet_lite0", "--size", "64"]
    small = ["--set", "bottleneck=8", "--set", "discriminator_hidden=8"]
    runs = {"readable": readable_run, "alike": same_run, "resume": ["--resume"]}
    tables = {"readable": readable_database, "alike": same_table}
    bench = ["bench", "toy.yaml", "--seeds", "2", "--methods", "source-only,dann", "--out", "out.sqlite"]
    bench += ["--steps", "60", "--set", "batch_size=8", "--set", "bottleneck=8", "--workers", "1", "--json"]
    named = ["--method", "ba3us", "--steps", "100", "--set", "refresh_every=10", *small, *_FEW]
    best = [*features, "--preset", "best", "--steps", "10", *_FEW]
    return [
        Scene("adapt features", 40, features + named, **runs),
        Scene("auto fast", 18, [*features, "--steps", "30", *_FEW], **runs),
        Scene("auto best", 6, best, **runs),
        Scene("auto best, its candidates in processes", 6, best, **runs, workers=True),
        Scene("adapt photos, with its caches", 14, photos + toy + named, **runs),
        Scene("bench", 12, bench, **tables),
        Scene("bench on ray", 4, [*bench, "--engine", "ray", "--address", address], **tables),
    ]


def material(folder: Path) -> None:
    """Features, photos and a protocol, made on the fly."""
    g = np.random.default_rng(0)
    centres = 3 * g.standard_normal((4, 6))
    y, yt = np.arange(80) % 4, np.arange(40) % 2
    x, xt = (centres[c] + g.standard_normal((len(c), 6)) + s for c, s in ((y, 0.0), (yt, 0.5)))
    names = np.array(["ant", "bee", "cat", "dog"])
    np.savez(folder / "s.npz", features=x.astype("f4"), labels=y, class_names=names)
    np.savez(folder / "t.npz", features=xt.astype("f4"))
    np.savez(folder / "u.npz", features=xt.astype("f4"), labels=yt, class_names=names[:2])
    (folder / "toy.yaml").write_text(
        "domains: {P: s.npz, Q: u.npz}\ntasks: [P->Q]\ntarget: {classes: [ant, bee]}\n"
    )
    for place, classes, count in (("labelled", 3, 8), ("new", 2, 6)):
        for label in range(classes):
            for number in range(count):
                colour = np.eye(3)[label] * 160 + g.normal(40, 30, (40, 40, 3))
                path = folder / place / (names[label] if place == "labelled" else "") / f"{label}{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(colour.clip(0, 255).astype(np.uint8)).save(path)


# --- the torture --------------------------------------------------------------------------------------------


def tortured(scene: Scene, kills: int, draw: random.Random, place: Path) -> dict[str, int]:
    """Kill a command so often; it goes on after each, and whenever it ends, the end must be the same."""
    reference, folder = place / "reference", place / "killed"
    for each in (reference, folder):
        each.mkdir(parents=True)
        material(each)
    os.environ["BA3US_CACHE"] = str(reference / "cache")
    seconds, operations = whole(scene, reference)
    os.environ["BA3US_CACHE"] = str(folder / "cache")
    killed, finished, interrupted = 0, 0, False
    until = time.monotonic() + 60 * _MINUTES * scene.share / 100
    while killed < kills or interrupted:
        if time.monotonic() > until:
            kills = killed  # the last one goes on to its end
        die_at, limit = None, float(_PATIENCE)
        if killed < kills:
            if draw.random() < 0.5:
                die_at = draw.randint(1, operations)
            else:
                limit = draw.uniform(0, 1.1 * seconds)
        pid = started(scene, scene.resume if interrupted else [], folder, die_at)
        code = ended(pid, limit)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == -signal.SIGKILL:
            killed, interrupted = killed + 1, True
            scene.readable(folder)
            print(f"{scene.name}: killed {killed}", file=sys.stderr, flush=True)
            continue
        said = (folder / "said.txt").read_text()
        if code == 2 and "There is a run in" in said:  # killed after its last file was in place
            code = 0
        if code != 0:
            raise WrongError(f"it ended with {code}: {said[-2000:]}")
        scene.alike(folder, reference)
        whole_cache(folder)
        finished, interrupted = finished + 1, False
        for name in ("out", "cache"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in folder.glob("out.sqlite*"):
            path.unlink()
    return {"kills": killed, "ends": finished}


def main() -> int:
    """All scenes, in proportion, or those whose name begins as the second argument says."""
    total, only = int(dict(enumerate(sys.argv)).get(1, 100)), dict(enumerate(sys.argv)).get(2, "")
    torch.set_num_threads(1)
    draw, failures, done = random.Random(0), 0, 0
    for scene in scenes(""):
        if not scene.name.startswith(only):
            continue
        on_ray, start = "ray" in scene.arguments, time.monotonic()
        if on_ray and importlib.util.find_spec("ray") is None:
            print(f"{scene.name}: skipped, there is no Ray")
            continue
        with tempfile.TemporaryDirectory(prefix="torture-") as place, ExitStack() as needed:
            if on_ray:
                scene = scenes(needed.enter_context(ray_cluster()))[-1]
            try:
                found = tortured(scene, max(1, round(total * scene.share / 100)), draw, Path(place))
            except Exception as error:  # the other scenes go on
                failures += 1
                print(f"{scene.name}: FAILED: {error}", flush=True)
                continue
        done += found["kills"]
        print(f"{scene.name}: {found['kills']} kills, {found['ends']} ends, all alike, "
              f"{time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
    print(f"{done} kills, {failures} scenes failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
