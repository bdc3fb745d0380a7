"""Thousands of damaged files: each is refused in one sentence, or read as what it was.

    python -m tests.torture.mutated_files [--files 2000] [--seed 0] [--only KIND]

Every kind of file that the software reads is damaged in every way of :mod:`damage` and given to what reads it.
Counted as a failure: any exception but a sentence, more than SECONDS, a result other than that of the undamaged
file where the format carries a checksum, and anything left behind by what was refused.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ba3us.errors import UserError

from .damage import damaged
from .victims import VICTIMS, Victim, prepare

SECONDS = 60
REFUSED, SAME, OTHER = "refused", "read, same result", "read as another file"


class Failure(NamedTuple):
    """A damaged file that was not dealt with: what was done to it, and what happened."""

    kind: str
    damage: str
    number: int
    what: str


class TookTooLong(BaseException):
    """No answer in time."""


def outcome(victim: Victim, folder: Path, good: Any) -> str:
    """What becomes of a folder with a damaged file; an AssertionError says what is wrong with that."""
    before = snapshot(folder)
    try:
        found = victim.use(folder)
    except UserError as error:
        sentence = str(error)
        assert "\n" not in sentence and "Traceback" not in sentence, f"not one sentence: {sentence!r}"
        after = snapshot(folder)
        assert after == before, f"left behind or changed: {sorted(after ^ before)}"
        return REFUSED
    if victim.exact:
        assert found == good, "read without a word, with another result"
        return SAME
    return SAME if found is not None and found == good else OTHER


def snapshot(folder: Path) -> set[tuple[str, int]]:
    """Names and sizes of all files; what SQLite keeps beside an open database is its own."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {(str(path.relative_to(folder)), path.stat().st_size) for path in files}


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """An exception if it takes longer."""

    def ring(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(victim: Victim, whole: Path, good: Any, others: list[bytes], seed: int) -> tuple[str, str]:
    """Damage one file in a copy of the folder: what was done, and what became of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        shutil.copytree(whole, folder)
        done, content = damaged((whole / victim.file).read_bytes(), others, np.random.default_rng(seed))
        (folder / victim.file).write_bytes(content)
        try:
            with within(SECONDS), quiet():
                return done, outcome(victim, folder, good)
        except AssertionError as error:
            return done, f"FAILURE: {error}"
        except TookTooLong:
            return done, f"FAILURE: no answer in {SECONDS} seconds"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = " ".join(str(error).split())[:150]
            return done, f"FAILURE: {type(error).__name__}: {said} ({Path(where.filename).name}:{where.lineno})"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What is printed is not shown."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def torture(victims: list[Victim], files: int, seed: int) -> tuple[dict[str, Counter[str]], list[Failure]]:
    """Damage so many files, kind after kind in turn: outcomes by kind, and what failed."""
    counts: dict[str, Counter[str]] = {victim.kind: Counter() for victim in victims}
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        whole.mkdir()
        with quiet():
            prepare(whole)
        good = {victim.kind: _undamaged(victim, whole) for victim in victims}
        contents = [(whole / victim.file).read_bytes() for victim in VICTIMS]
        for number in range(files):
            victim = victims[number % len(victims)]
            kind = Path(victim.file).suffix  # another file of the same kind is a good file
            others = [content for content, other in zip(contents, VICTIMS) if not other.file.endswith(kind)]
            try:
                done, became = attempt(victim, whole, good[victim.kind], others, seed * 1_000_003 + number)
            except KeyboardInterrupt:  # what has been found is told
                break
            if became.startswith("FAILURE"):
                failures.append(Failure(victim.kind, done, number, became))
                counts[victim.kind]["FAILURE"] += 1
                print(*failures[-1], sep=" | ", file=sys.stderr, flush=True)
            else:
                counts[victim.kind][became] += 1
    return counts, failures


def _undamaged(victim: Victim, whole: Path) -> Any:
    with tempfile.TemporaryDirectory() as place, quiet():
        folder = Path(place) / "files"
        shutil.copytree(whole, folder)
        try:
            return victim.use(folder)
        except UserError:
            return None  # a file of weights that fits no backbone


def main() -> None:
    """Damage files and print what became of them; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds with this word in their name")
    arguments = parser.parse_args()
    os.environ["BA3US_CACHE"] = tempfile.mkdtemp()
    try:
        chosen = [victim for victim in VICTIMS if arguments.only in victim.kind]
        counts, failures = torture(chosen, arguments.files, arguments.seed)
    finally:
        shutil.rmtree(os.environ["BA3US_CACHE"], ignore_errors=True)
    columns = (REFUSED, SAME, OTHER, "FAILURE")
    print(f"| kind | files | {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) + 1)}")
    for kind, count in [*counts.items(), ("in all", sum(counts.values(), Counter()))]:
        print(f"| {kind} | {count.total()} | {' | '.join(str(count[column]) for column in columns)} |")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
