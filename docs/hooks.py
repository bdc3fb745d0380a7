"""Hooks of mkdocs: pages get into the menu, commands get a page, and formulas become SVG."""

from __future__ import annotations

import html
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
CLI_PAGE = "cli.md"
DEFAULT_SECTION = "Guides"  # for a page that mkdocs.yml does not name


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add pages that mkdocs.yml does not name to the menu."""
    assert config.nav is not None
    named = set(_pages(config.nav))
    sections = {name: pages for entry in config.nav if isinstance(entry, dict) for name, pages in entry.items()}
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).as_posix()
        if page not in named:
            sections["Results" if page.startswith("results/") else DEFAULT_SECTION].append(page)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference of the commands."""
    files.append(File.generated(config, CLI_PAGE, content=cli_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn blocks of `math` into inline SVG, which needs no script and no network."""
    return re.sub(r"^```math\n(.*?)^```$", lambda match: drawn(match[1]), markdown, flags=re.M | re.S)


def drawn(formula: str) -> str:
    """Draw a formula, in the part of LaTeX that matplotlib knows, as inline SVG in the colour of the text."""
    import matplotlib
    from matplotlib import font_manager, mathtext

    file, size = io.BytesIO(), font_manager.FontProperties(size=13, math_fontfamily="cm")
    with matplotlib.rc_context({"svg.hashsalt": "ba3us"}):
        mathtext.math_to_image(f"${formula.strip()}$", file, prop=size, format="svg")
    svg = re.search(r"<svg.*</svg>", file.getvalue().decode(), flags=re.S)
    assert svg is not None
    return f'<p class="formula">{_inline(svg[0], formula.strip())}</p>'


def _inline(svg: str, formula: str) -> str:
    """Remove background, metadata and style; make identifiers unique, because a page holds several formulas."""
    prefix = f"f{zlib.crc32(formula.encode()):x}"
    svg = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'<g id="patch_1">.*?</g>', "", svg, flags=re.S)
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    label = f'<svg role="img" aria-label="{html.escape(formula)}" fill="currentColor"'
    return re.sub(r"\s*\n\s*", " ", svg).replace("<svg", label, 1)


def cli_page() -> str:
    """List every command with its arguments and options, as Markdown."""
    from typer.main import get_command

    from ba3us.cli import app

    command = get_command(app)
    lines = ["# Commands", "", str(command.help), ""]
    lines += ["Every command has `--help`. A mistake is answered with one sentence and exit code 2.", ""]
    for name, sub in command.commands.items():  # type: ignore[attr-defined]
        lines += [f"## ba3us {name}", "", sub.help or "", "", "| | | default |", "|---|---|---|"]
        lines += [_row(parameter) for parameter in sub.params]
        lines.append("")
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.name.upper()}`"
    else:
        name = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    default = "needed" if parameter.required else ""
    if parameter.default not in (None, False, ...):
        default = f"`{parameter.default}`"
    elif isinstance(words := getattr(parameter, "show_default", None), str):
        default = words  # what happens where the option is not given
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    return f"| {name} | {text} | {default} |"


def _pages(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from _pages(value)
            else:
                yield value
