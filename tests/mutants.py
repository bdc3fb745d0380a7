"""Deliberate mistakes, each of which a test must notice: ``make mutants [ONLY=word]``.

A mutant names a function and what is changed in its syntax tree. So it keeps its place when the text around it
moves, and `tests/test_mutants.py` says when its function or what it changes is gone.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
Change = Callable[[ast.AST], int]  # changes a function's tree in place; how many places it changed


class Mutant(NamedTuple):
    """What it breaks, ``file.py:Class.function``, the change, and the tests that should notice."""

    name: str
    place: str
    change: Change
    tests: str


# --- changes ------------------------------------------------------------------------------------------------


def without_argument(name: str) -> Change:
    """Leave a keyword argument out of the call that has it."""

    def change(tree: ast.AST) -> int:
        calls = [
            n for n in ast.walk(tree) if isinstance(n, ast.Call) and any(k.arg == name for k in n.keywords)
        ]
        for call in calls:
            call.keywords = [k for k in call.keywords if k.arg != name]
        return len(calls)

    return change


def without_name(text: str) -> Change:
    """Leave an element such as ``"seed"`` or ``self.labels`` out of the list, tuple or set that has it."""

    def change(tree: ast.AST) -> int:
        count = 0
        for node in ast.walk(tree):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                kept = [each for each in node.elts if ast.unparse(each) != text]
                count += len(node.elts) - len(kept)
                node.elts = kept
        return count

    return change


def replaced(old: str, new: str, times: int = 1) -> Change:
    """Put the expression `new` in place of the expression `old`, both as Python writes them."""

    class Replace(ast.NodeTransformer):
        count = 0

        def generic_visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and ast.unparse(node) == old:
                self.count += 1
                return ast.parse(new, mode="eval").body
            return super().generic_visit(node)

    def change(tree: ast.AST) -> int:
        visitor = Replace()
        visitor.visit(tree)
        return visitor.count - times + 1

    return change


def negated(condition: str) -> Change:
    """Turn a condition round."""
    return replaced(condition, f"not ({condition})")


def returns(expression: str) -> Change:
    """Return this at once."""

    def change(tree: ast.AST) -> int:
        assert isinstance(tree, ast.FunctionDef)
        tree.body = ast.parse(f"def _():\n    return {expression}").body[0].body  # type: ignore[attr-defined]
        return 1

    return change


# --- the list -----------------------------------------------------------------------------------------------

RUN, SPEC, MODEL, IMAGES = (f"tests/run/test_{name}.py" for name in ("run", "spec", "model", "image_run"))
RULES, LOOP, RESUME = (f"tests/training/test_{name}.py" for name in ("rules", "loop", "resume"))
STUDY, DATABASE, DAMAGE = (f"tests/bench/test_bench_{name}.py" for name in ("study", "database", "damage"))
SCORING, LABELS, BA3US = (
    "tests/assess/test_scoring.py",
    "tests/assess/test_target_labels.py",
    "tests/methods/test_ba3us.py",
)

MUTANTS = [
    Mutant(
        "run: seed not passed on", "run/train.py:train_one", replaced("spec.seed", "0", 2), f"{RUN} {IMAGES}"
    ),
    Mutant("run: selection rule ignored", "run/train.py:train_one", without_argument("rule"), RUN),
    Mutant(
        "run: precision ignored",
        "run/train.py:train_one",
        replaced("PRECISIONS[spec.precision]", "'32-true'"),
        IMAGES,
    ),
    Mutant(
        "run: presence of the first evaluation",
        "run/train.py:train_one",
        replaced(
            "presence_table(best, opened.classes)", "presence_table(result.evaluations[0], opened.classes)"
        ),
        RUN,
    ),
    Mutant(
        "resume: identity without the threads",
        "run/train.py:train_one",
        replaced("(process_group.size, torch.get_num_threads())", "process_group.size"),
        RUN,
    ),
    Mutant(
        "resume: identity without the arrays' labels",
        "run/arrays.py:OpenedArrays.content",
        without_name("self.labels"),
        RUN,
    ),
    Mutant(
        "results: checksum not compared",
        "run/storage.py:read_results",
        replaced("checksum == _checksum(content, model_digest)", "True"),
        "tests/run/test_damaged_run.py",
    ),
    Mutant(
        "spec: published settings ignored",
        "run/spec.py:Spec.method_options",
        replaced("self.protocol", "None"),
        SPEC,
    ),
    Mutant(
        "rules: the later of equals",
        "training/loop.py:Trainer.evaluate",
        replaced(
            "self.rule.latest and evaluation.score == self.best_score", "evaluation.score == self.best_score"
        ),
        RULES,
    ),
    Mutant("bench: key without the seed", "bench/jobs.py:Job.spec", without_name("'seed'"), DATABASE),
    Mutant("bench: key without the data", "bench/jobs.py:Job.spec", without_name("'data'"), DATABASE),
    Mutant(
        "bench: published settings ignored",
        "bench/jobs.py:_method_options",
        without_argument("protocol"),
        STUDY,
    ),
    Mutant("scoring: last is the first", "assess/scoring.py:scored", replaced("rows[-1]", "rows[0]"), SCORING),
    Mutant(
        "tables: formulas are not marked", "data/files.py:escaped", returns("cell"), "tests/data/test_tables.py"
    ),
    Mutant(
        "report: names are not escaped",
        "report/page.py:html",
        replaced("True", "False", 3),
        "tests/report/test_run_page.py",
    ),
    Mutant(
        "loop: the last weights are kept",
        "training/loop.py:Trainer.evaluate",
        negated("candidate and (evaluation.score > self.best_score or tie_counts)"),
        f"{LOOP} {RULES}",
    ),
    Mutant("ba3us: nothing is borrowed", "methods/ba3us.py:BA3US.borrow", returns("0"), BA3US),
    Mutant("ba3us: class weights are never read", "methods/ba3us.py:BA3US.refresh", returns("None"), BA3US),
]


# --- trying them --------------------------------------------------------------------------------------------


def mutated(mutant: Mutant, package: Path = ROOT / "src" / "ba3us") -> tuple[str, str]:
    """The file that a mutant changes, and its new text; an error unless it changes exactly one place."""
    file, _, path = mutant.place.partition(":")
    tree: ast.Module = ast.parse((package / file).read_text(encoding="utf-8"))
    node: ast.AST = tree
    for name in filter(None, path.split(".")):
        body = getattr(node, "body", [])
        found = [each for each in body if getattr(each, "name", None) == name]
        assert len(found) == 1, f"{mutant.name}: {mutant.place} is there {len(found)} times"
        node = found[0]
    count = mutant.change(node)
    assert count == 1, f"{mutant.name}: it changes {count} places of {mutant.place}"
    return file, ast.unparse(ast.fix_missing_locations(tree))


def noticed(mutant: Mutant) -> str:
    """The test that fails on a copy of the package with the mutant's change; empty: none does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file, text = mutated(mutant)
        (copy / "ba3us" / file).write_text(text, encoding="utf-8")
        command = [sys.executable, *["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]]
        env = os.environ | {"PYTHONPATH": str(copy)}
        done = subprocess.run(
            [*command, *shlex.split(mutant.tests)],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # not: no test was run
    return "".join(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))


def main() -> None:
    """Try all, or those with a word in their name, and say what became of each."""
    chosen = [mutant for mutant in MUTANTS if " ".join(sys.argv[1:]) in mutant.name]
    survivors = 0
    for mutant in chosen:
        test = noticed(mutant)
        survivors += not test
        print(f"{mutant.name}: {test or 'UNNOTICED'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} noticed")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
