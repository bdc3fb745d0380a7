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
<<<<<<< HEAD
RUN, IMAGES, MODEL = "tests/engine/test_run.py", "tests/engine/test_image_run.py", "tests/engine/test_model.py"
SPEC, RULES = "tests/engine/test_spec.py", "tests/training/test_rules.py"
EXPORT, EXPORT_IMAGES, TABLES = (
    "tests/export/test_export_features.py", "tests/export/test_export_images.py", "tests/data/test_tables.py",
)  # fmt: skip
ESTIMATOR = "tests/test_estimator.py -k 'not scikit_learns_suite'"
PAGE, CHARTS, BENCH_PAGE = (f"tests/report/test_{name}.py" for name in ("run_page", "charts", "bench_report"))
LABELS, BROWSER = "tests/selection/test_target_labels.py", "tests/report/test_page_in_browser.py"
STUDY, LOCAL, DATABASE = (f"tests/bench/test_bench_{name}.py" for name in ("study", "local", "database"))
=======
Change = Callable[[ast.AST], int]  # changes a function's tree in place; how many places it changed
>>>>>>> eb1ef14 (CONTRIBUTING drawn anew; mutants find their place by function)


class Mutant(NamedTuple):
    """What it breaks, ``file.py:Class.function``, the change, and the tests that should notice."""

    name: str
    place: str
    change: Change
    tests: str


# --- changes ------------------------------------------------------------------------------------------------


<<<<<<< HEAD
MUTANTS = [
    _mutant(
        "bench: finished jobs are run again", LOCAL,
        "bench/study.py", " if job.key not in done]", "]",
        "bench/study.py", " if not database.has(job.key, with_points))", ")",
    ),
    _mutant(
        "bench: key without options", DATABASE,
        "bench/jobs.py", '"method", "options", "seed"', '"method", "seed"',
    ),
    _mutant("bench: key without the data", DATABASE, "bench/jobs.py", '"seed", "data")}', '"seed")}'),
    _mutant("bench: seed not passed on", STUDY, "bench/jobs.py", "        seed=job.seed,\n", ""),
    _mutant(
        "bench: key without evaluate_every", STUDY,
        "bench/jobs.py", '("published", "evaluate_every")}', '("published",)}',
    ),
    _mutant(
        "bench: a changed bit is not noticed", DATABASE,
        "bench/database.py", "if checksum(*row) != expected:", "if False:",
    ),
    _mutant("bench: the warm-up may be selected", STUDY, "bench/jobs.py", '.where(table["candidate"])', ""),
    _mutant(
        "bench: sign of the entropy", STUDY,
        "training/evaluation.py", "return sign * evaluation", "return evaluation",
    ),
    _mutant(
        "bench: published settings ignored", STUDY,
        "bench/jobs.py", "entry.options(protocol=published, task=where, **changed)",
        "entry.options(**changed)",
    ),
    _mutant(
        "bench: failed run not recorded", LOCAL,
        "bench/study.py", "            database.record(",
        "            isinstance(outcome, Failure) or database.record(",
    ),
    _mutant(
        "bench: failure replaces success", DATABASE,
        "bench/database.py", 'if before != ("ok",):', "if True:",
    ),
    _mutant("bench: last is the first", DATABASE, "assess/scoring.py", "int(rows[-1])", "int(rows[0])"),
    _mutant(
        "resume: identity without images and labels", IMAGES,
        "run/images.py", "yield from (*self.source.keys, self.labels.tobytes(), *self.target.keys)",
        "yield b''",
    ),
    _mutant(
        "resume: identity without the images' labels", IMAGES,
        "run/images.py", "self.labels.tobytes(), ", "",
    ),
    _mutant(
        "resume: identity without the arrays' labels", RUN,
        "run/arrays.py", "in (self.source, self.labels, self.target):", "in (self.source, self.target):",
    ),
    _mutant(
        "resume: identity without the backbone's weights", IMAGES,
        "run/opening.py", "spec.method_options(), opened.samples, ", "spec.method_options(), ",
    ),
    _mutant(
        "resume: identity without torch's threads", RUN,
        "run/train.py", "(process_group.size, torch.get_num_threads())", "process_group.size",
    ),
    _mutant(
        "run: state removed on interruption", RUN,
        "adapt.py",
        "    except UserError as error:\n        if process_group",
        "    except BaseException as error:\n        if process_group",
    ),
    _mutant(
        "run: overwrites without being told", RUN,
        "run/storage.py", "check_new_folder(path, overwrite, ", "check_new_folder(path, True, ",
    ),
    _mutant(
        "run: batches ignore the seed", RUN,
        "run/train.py", "        seed=spec.seed,\n", "        seed=0,\n",
    ),
    _mutant("run: weights ignore seed", RUN, "run/train.py", "with seeded(spec.seed)", "with seeded(0)"),
    _mutant("run: selection ignored", RUN, "run/train.py", "rule=spec.selection", 'rule="entropy"'),
    _mutant(
        "run: keeps the last weights", RUN,
        "run/train.py", "result.module.eval()", 'result.use("last").module.eval()',
    ),
    _mutant(
        "run: presence of the last evaluation", RUN,
        "run/train.py", "presence_table(best, ", "presence_table(result.evaluations[-1], ",
    ),
    _mutant(
        "run: target labels are looked at", RUN,
        "run/arrays.py", "labels, target.features, classes",
        "labels, target.features if target.labels is None else target.features[::-1].copy(), classes",
    ),
    _mutant(
        "run: history without scores", ESTIMATOR,
        "training/evaluation.py",
        '            | {f"target_{name}": value for name, value in e.scores.items()}\n',
        "",
    ),
    _mutant(
        "run: precision ignored", IMAGES,
        "run/train.py", "precision=PRECISIONS[spec.precision]", 'precision=PRECISIONS["float32"]',
    ),
    _mutant(
        "images: cache_gb ignored", IMAGES,
        "run/spec.py", "DEFAULT_CACHE_GB if spec.cache_gb is None else spec.cache_gb",
        "DEFAULT_CACHE_GB",
    ),
    _mutant("predict: --root dropped by the command", IMAGES, "cli/commands.py", "root=root, ", ""),
    _mutant(
        "predict: root dropped", IMAGES,
        "run/images.py", "list_images(data, spec.root)", "list_images(data, None)",
    ),
    _mutant(
        "model: digest not verified", MODEL,
        "run/build.py", 'about.get("digest") == _digest(about["header"], state)', "True",
    ),
    _mutant(
        "spec: published settings ignored", SPEC,
        "run/spec.py", ".options(self.protocol, self.task, **self.options)", ".options(**self.options)",
    ),
    _mutant(
        "spec: fields of other data accepted", SPEC,
        "run/spec.py", "        if wrong:", "        if False:",
    ),
    _mutant("estimator: threads ignored", ESTIMATOR, "estimator.py", "n_threads=self.n_threads,", ""),
    _mutant(
        "rules: the later of equals", RULES,
        "training/evaluation.py", "else score > best", "else score >= best",
    ),
    _mutant(
        "rules: sign of the entropy", RULES,
        "training/evaluation.py", "scores.mean_entropy, -1,", "scores.mean_entropy, 1,",
    ),
    _mutant(
        "export: the network, not the method's way to predict", EXPORT,
        "export/exporting.py", "self.module.method.predict(self.module.network, x.to(dtype))",
        "self.module.network(x.to(dtype))",
    ),
    _mutant("export: unsure classes are dropped", EXPORT, "export/exporting.py", '!= "absent"', '== "present"'),
    _mutant("export: whatever differs is written", EXPORT, "export/exporting.py", "largest <= LIMIT", "True"),
    _mutant(
        "export: channels the other way round", EXPORT_IMAGES,
        "export/exporting.py", "x.permute(0, 2, 3, 1)", "x.flip(1).permute(0, 2, 3, 1)",
    ),
    _mutant(
        "tables: formulas are not marked", TABLES,
        "data/files.py", 'f"\'{cell}" if formula', "cell if formula",
    ),
    _mutant("rules: last is the first", RULES, "training/evaluation.py", "_same, latest=True)", "_same)"),
    _mutant("report: names are not escaped", PAGE, "report/page.py", "autoescape=True", "autoescape=False"),
    _mutant(
        "report: names in charts are read as mathematics", CHARTS,
        "report/charts.py", '"text.parse_math": False', '"text.parse_math": True',
    ),
    _mutant(
        "report: anything may be loaded", PAGE,
        "report/page.py", "\"default-src\": \"'none'\"", '"default-src": "*"',
    ),
    _mutant(
        "report: the last evaluation is called the selected one", PAGE,
        "report/sections.py", "float(at[selected])", "float(at[-1])",
    ),
    _mutant(
        "report: phases lie on each other", PAGE,
        "assess/scoring.py", 'looks["step"] + looks["phase"].map(ends.cumsum() - ends)', 'looks["step"]',
    ),
    _mutant(
        "report: accuracy of the last evaluation", PAGE,
        "report/run_page.py", "report.run.best.predictions == report.labels",
        "report.run.evaluations[0].predictions == report.labels",
    ),
    _mutant("report: changed data is drawn", PAGE, "run/predict.py", "opened.rows == tuple(sizes)", "True"),
    _mutant(
        "report: labels by their place, not their name", LABELS,
        "assess/scoring.py", "array([number[name] for name in found]",
        "array([sorted(set(found)).index(name) for name in found]",
    ),
    _mutant(
        "report: labels in the order of their file", LABELS,
        "assess/scoring.py", "return [by_key[key] for key in wanted]", "return names[: len(wanted)]",
    ),
    _mutant(
        "report: runs of several settings are averaged", BENCH_PAGE,
        "bench/html_page.py", "in part.index if different else ()", "in ()",
    ),
    _mutant(
        "report: gains over the mean of source-only", BENCH_PAGE,
        "bench/tables.py", "- beside.to_numpy()", "- beside.mean()",
    ),
    _mutant(
        "report: a hidden line answers the pointer", BROWSER,
        "report/page.js", "distance < nearest && seen(spot)", "distance < nearest",
    ),
    _mutant(
        "report: a phone has to scroll sideways", BROWSER,
        "report/page.css", ".table { overflow-x: auto;", ".table {",
    ),
    _mutant(
        "report: focus is not shown", BROWSER,
        "report/page.css", ":focus-visible { outline: 3px solid", ":focus-visible { outline: 0 solid",
    ),
]  # fmt: skip
=======
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


def replaced(old: str, new: str) -> Change:
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
        return visitor.count

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

MUTANTS: list[Mutant] = []


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
>>>>>>> eb1ef14 (CONTRIBUTING drawn anew; mutants find their place by function)


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
