"""What all commands share: the app, how errors and results are printed, and how options are described."""

from __future__ import annotations

import ctypes
import json as jsonlib
import os
import platform
import re
import signal
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from ba3us import __version__
from ba3us.errors import UserError
from ba3us.progress import say

app = typer.Typer(
    name="ba3us",
    help="Partial domain adaptation: for a target that holds only some of the source's classes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def option(help: str, *names: str, default: str = "", panel: str | None = None, **more: Any) -> Any:
    """Describe an option; `default` says in words what happens where the option is not given."""
    return typer.Option(*names, help=help, show_default=default or True, rich_help_panel=panel, **more)


Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
LABELLED = typer.Argument(help="Labelled: a folder of class folders, a list file, .npz, or .npy with --labels.")
UNLABELLED = typer.Argument(help="Unlabelled: a folder or list file of images, .npz or .npy.")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ba3us {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before any command."""


def main() -> None:
    """Entry point: bad input is one sentence on the standard error and exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that temporary files are removed
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except UserError as error:
        say(f"ba3us: {option_names(str(error))}")
    except OSError as error:
        if error.filename is not None:  # a name that is too long, a folder that may not be entered
            say(f"ba3us: {error.filename} can't be used ({error.strerror}): check the path.")
            sys.exit(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python fails again when it ends
        if isinstance(error, BrokenPipeError):  # such as with | head
            sys.exit(1)
        reason = error.strerror or error
        say(f"ba3us: The output can't be written ({reason}): make room, or send it elsewhere.")
    sys.exit(2)


def option_names(sentence: str) -> str:
    """Turn parameters that a message names in backticks into options: `n_threads` → --threads.

    Messages of the library name Python parameters, because Python users read them as well.
    """
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    names = {p.name: p.opts[0] for command in commands for p in command.params if p.opts[0].startswith("--")}
    names |= {"method_params": "--set"}

    def replacement(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"{names[name]} {value or ''}".rstrip() if name in names else match.group()

    return re.sub(r"`(\w+)(?:='?([^'`]*)'?)?`", replacement, sentence)


def show(payload: Any, json: bool, table: RenderableType | None = None) -> None:
    """Print `payload` as JSON, or the table for people."""
    if json:
        print(jsonlib.dumps(payload, ensure_ascii=False, indent=2))
    elif table is not None:
        Console(markup=False, emoji=False).print(table)  # names of files and classes are shown as they are


def keep_memory() -> None:
    """Let this process keep freed memory for the next step instead of giving it back to the system.

    By default every large tensor is new memory that the kernel has to clear: on a CPU a third of the time of a
    step on images. For programs, once, at their start; nothing in the package that can be imported and called
    does it, because the allocator is its caller's. Only for glibc (Linux); elsewhere nothing is changed.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(-4, 0)  # M_MMAP_MAX
        library.mallopt(-1, -1)  # M_TRIM_THRESHOLD
