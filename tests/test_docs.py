"""The pages: links lead somewhere, and commands have the sub-commands and options that are shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from ba3us.cli import app
from pages import PAGES, ROOT, command_lines, name_of

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
STARTED = re.compile(r"(?:^|.* -m )ba3us |.*\"\$\(which ba3us\)\" ")  # by itself, or by a launcher

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings, and those that are written out."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r'^<a id="([^"]+)"></a>$', text, flags=re.MULTILINE))


def broken_links(page: Path, text: str) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        if re.match(r"\w+:", link):
            continue
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield link


def wrong_words(line: str) -> list[str]:
    """Words of a command line that `ba3us` or a benchmark would not know; none if it is another program's."""
    if module := re.search(r"-m (ba3us\.\S+)", line):
        return [module[1]]
    if script := re.match(r"python (benchmarks/\w+\.py)(.*)", line):
        text = (ROOT / script[1]).read_text(encoding="utf-8") if (ROOT / script[1]).is_file() else ""
        return [word for word in ["argparse", *re.findall(r"--[\w-]+", script[2])] if word not in text]
    start = STARTED.match(line)
    words = shlex.split(line[start.end() :], comments=True) if start else []
    if not words or words[0].startswith("-"):
        return []
    if words[0] not in COMMANDS:
        return words[:1]
    known = {name for option in COMMANDS[words[0]].params for name in option.opts}
    given = (word.partition("=")[0] for word in words[1:])
    return [word for word in given if word.startswith("--") and word not in known]


@every_page
def test_links_lead_to_files_and_headings(page):
    assert list(broken_links(page, page.read_text(encoding="utf-8"))) == []


@every_page
def test_commands_exist_with_their_options(page):
    lines = command_lines(page.read_text(encoding="utf-8"))
    assert {line: wrong for line in lines if (wrong := wrong_words(line))} == {}


def test_wrong_pages_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One thing\n", encoding="utf-8")
    text = "[a](page.md#one-thing) [b](page.md#two) [c](gone.md) [d](https://x.org/y) `[e](gone.md)`"
    assert list(broken_links(page, text)) == ["page.md#two", "gone.md"]
    block = "```console\nba3us adapt a \\\n   b --gone 1 --seed 2  # --said\n```\n\n    ba3us fly\n"
    assert [wrong_words(line) for line in command_lines(block)] == [["--gone"], ["fly"]]
    launched = 'fabric run --devices 4 "$(which ba3us)" adapt a b --gone'
    assert wrong_words("python -m ba3us.cli adapt a b") == ["ba3us.cli"]
    assert wrong_words("python benchmarks/step.py --parts --methods ba3us --gone 1") == ["--methods", "--gone"]
    assert wrong_words("python benchmarks/gone.py") == ["argparse"]
    assert wrong_words(launched) == wrong_words("torchrun --x 4 -m ba3us adapt a b --gone") == ["--gone"]
