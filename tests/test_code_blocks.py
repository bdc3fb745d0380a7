"""Code blocks of the pages run: Python in order in one namespace per page, commands on toy data."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from arrays_toys import NAMES, clouds
from ba3us import PartialAdapter
from ba3us.cli import app
from ba3us.data import digits
from pages import PAGES, ROOT, blocks, command_lines, name_of

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
X, Y, XT, TRUTH = clouds()
FEW = ("--steps", "4", "--set", "batch_size=4", "--threads", "1")
EXCERPTS = "docs/method.md"
# pages whose Python is run elsewhere, by these files
ELSEWHERE = {
    "CONTRIBUTING.md": "tests/methods/test_contributing.py",
    "docs/export.md": "tests/export/test_export_images.py",
    "docs/gallery.md": "tests/test_gallery.py",
    EXCERPTS: "tests/test_code_blocks.py",
}
# what is parsed only: it wants a benchmark's data, a GPU, words that the reader puts in, or many processes
NOT_RUN = re.compile(
    r"ba3us (bench|paper|demo|report runs/bench)|…|imagenet/|--preset best|--backbone resnet50"
)


def having(*languages: str) -> list[Path]:
    return [page for page in PAGES if blocks(page.read_text(encoding="utf-8"), *languages)]


def of_ba3us(page: Path) -> list[list[str]]:
    """Command lines of ba3us itself, as words."""
    lines = command_lines(page.read_text(encoding="utf-8"))
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("ba3us ")]


def parsed_wrongly(words: list[str]) -> str | None:
    """What the command says of the words that it is given, if it does not take them."""
    try:
        COMMANDS[words[0]].make_context(words[0], list(words[1:]))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def quick(*args: Any, **changes: Any) -> PartialAdapter:
    """The estimator with fewer steps than a page asks for."""
    return PartialAdapter(*args, **changes | {"steps": 10, "n_threads": 1})


quick.load = PartialAdapter.load  # type: ignore[attr-defined]


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A folder with what the pages name; the digits of the tutorial are clouds."""
    monkeypatch.chdir(tmp_path)
    numbers = np.searchsorted(NAMES, Y)
    np.savez("labelled.npz", features=X, labels=numbers, class_names=NAMES)
    for name in ("new.npz", "more.npz"):
        np.savez(name, features=XT)
    answers = (f"{row},{name}" for row, name in enumerate(TRUTH))
    Path("new_labels.csv").write_text("\n".join(["row,class", *answers]) + "\n", encoding="utf-8")
    for name, values in (("X", X), ("Xt", XT), ("y", Y)):
        np.save(f"{name}.npy", values)
    monkeypatch.setattr(digits, "mnist_to_digits", lambda: (X, Y, XT, TRUTH))
    return tmp_path


@pytest.fixture
def photos(toys):
    """A few photos: one colour per class, two classes in the target."""
    image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
    pytest.importorskip("timm", reason="needs the vision extra")
    noise = np.random.default_rng(0)
    for name, count, classes in (("labelled", 12, 3), ("new", 8, 2), ("more", 2, 2)):
        for number in range(count):
            kind = number % classes
            folder = toys / "photos" / name / ("abc"[kind] if name == "labelled" else "")
            folder.mkdir(parents=True, exist_ok=True)
            pixels = noise.integers(0, 120, (24, 24, 3)) + 130 * np.eye(3, dtype=int)[kind]
            image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    answers = (f"{number}.png,{'ab'[number % 2]}" for number in range(8))
    (toys / "labels.csv").write_text("\n".join(["path,class", *answers]) + "\n", encoding="utf-8")
    return toys


@pytest.mark.parametrize("page", having("python"), ids=name_of)
def test_python_runs(page, toys, monkeypatch):
    code = blocks(page.read_text(encoding="utf-8"), "python")
    if where := ELSEWHERE.get(name_of(page)):
        assert page.name in (ROOT / where).read_text(encoding="utf-8")
        return
    monkeypatch.setattr("ba3us.estimator.PartialAdapter", quick)
    known = {"X": X, "y": Y, "Xt": XT, "labels": np.searchsorted(NAMES, TRUTH), "PartialAdapter": quick}
    if "runs/new" in "".join(code):
        quick("ba3us").fit(X, Y, XT).run_.save("runs/new")
    for block in code:
        exec(compile(block, name_of(page), "exec"), known)


def test_excerpts_are_the_codes_own_lines():
    found = blocks((ROOT / EXCERPTS).read_text(encoding="utf-8"), "python")
    assert len(found) > 8
    for block in found:
        head, _, lines = block.partition("\n")
        text = (ROOT / "src/ba3us" / head.removeprefix("# ")).read_text(encoding="utf-8")
        depths = {textwrap.indent(lines, " " * depth) in text for depth in (0, 4, 8, 12)}
        assert True in depths, f"{EXCERPTS} shows lines that {head.removeprefix('# ')} has not:\n{lines}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_parse(page):
    whole = [words for words in of_ba3us(page) if words[0] in COMMANDS and "…" not in words]
    assert {shlex.join(words): said for words in whole if (said := parsed_wrongly(words))} == {}


def test_what_does_not_parse_is_noticed():
    assert parsed_wrongly(["predict", "runs/new", "more.npz", "--out", "out.csv"]) is None
    assert "out" in str(parsed_wrongly(["predict", "runs/new", "more.npz"]))
    assert "integer" in str(parsed_wrongly(["adapt", "a", "b", "--seed", "many"]))


# pages of results are records of what was run; those of images are the commands of photos.md, with more options
RUN = [page for page in having("console") if page.parent.name != "results" and page.name != "images.md"]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_commands_run(page, request):
    """In order, in one folder, with fewer updates."""
    lines = [words for words in of_ba3us(page) if not NOT_RUN.search(shlex.join(["ba3us", *words]))]
    if not lines:
        pytest.skip("its commands want a benchmark's data or a GPU")
    request.getfixturevalue("photos" if any("photos/" in word for words in lines for word in words) else "toys")
    if not any(words[0] == "adapt" for words in lines):  # the page takes a run for granted
        made = {word for words in lines for word in words if re.fullmatch(r"runs/\w+", word)}
        lines = [["adapt", "labelled.npz", "new.npz", "--out", run] for run in sorted(made)] + lines
    if any(words[0] == "export" for words in lines):
        pytest.importorskip("onnxscript", reason="needs the export extra")
    for words in lines:
        extra = FEW if words[0] == "adapt" and "--config" not in words else ()
        said = CliRunner().invoke(app, [*words, *extra])
        assert said.exit_code == 0, f"ba3us {shlex.join(words)}: {said.exception!r} {said.output}"
