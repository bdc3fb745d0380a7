"""The options of ``ba3us adapt`` as a table; other commands take from it those that they have, too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ba3us.cli.app import option

# name: type, help, what happens where it is not given (in words); flags, if they are not just --name
_TABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "Training": {
        "method": (str, "Choose without labels (auto), or train a method of 'ba3us methods'.", "auto"),
        "preset": (str, "Try one robust recipe (fast) or several (best); for auto.", "fast"),
        "time_limit": (float, "Start no further candidate after so many seconds; for auto.", "none"),
        "force": (bool, "Use the adapted model even without evidence; for auto.", ""),
        "settings": (list[str], "Set an option of the method, name=value.", "", "--set"),
        "steps": (int, "Train for so many steps.", "the method's"),
        "protocol": (str, "Use the settings published for a dataset, such as office31.", "none"),
        "task": (str, "Use the settings of this task of the protocol, such as 'A->W'.", ""),
        "selection": (str, "Select the checkpoint by this rule.", "entropy"),
        "evaluate_every": (int, "Evaluate the target also every so many steps.", "at refreshes only"),
        "seed": (int, "Seed initial weights, batches and dropout.", "0"),
        "n_threads": (int, "Use so many CPU threads; results depend on them.", "torch's", "--threads"),
        "on_nan": (str, "Stop at a NaN or infinite loss, or retry from a good state at a lower rate.", "stop"),
        "on_collapse": (str, "Continue or stop when predictions fall onto few classes.", "continue"),
        "correct_prior": (bool, "Correct the classifier's prior by EM at the end; for mild shifts.", ""),
    },
    "Features": {
        "standardize": (
            bool,
            "Standardise features by the source's columns, or leave them as they are.",
            "if far from unit scale",
            "--standardize/--no-standardize",
        ),
        "labels": (Path, "Read the source's labels from this .npy file.", ""),
    },
    "Images": {
        "backbone": (str, "Use this timm backbone.", "efficientnet_lite0, offline"),
        "weights": (Path, "Load the backbone's weights from this .safetensors or .pth file.", "its own"),
        "train": (str, "Train the head, tail, all, or from a stage on.", "head on a CPU, else tail"),
        "views": (int, "Keep so many augmented views if a part is frozen; 0: the centre.", "head 0, else 4"),
        "size": (int, "Crop to this side in pixels.", "the backbone's own"),
        "ten_crop": (bool, "Offer ten crops to methods that refresh from them.", ""),
        "root": (Path, "Start the paths of list files here.", "the list's folder"),
        "classes": (Path, "Read the class names of a list file, one per line.", "its folders or numbers"),
        "cache_gb": (float, "Let the cache hold so many GB; 0: keep none.", "10"),
        "workers": (int, "Decode images in so many threads.", "one per core"),
    },
    "Devices": {
        "device": (str, "Compute on auto, cpu or cuda.", "auto", "--device", "--accelerator"),
        "devices": (str, "Start so many processes per node, or auto.", "1"),
        "nodes": (int, "Run on so many machines together.", "1"),
        "precision": (str, "Compute in float32, bfloat16 or float16.", "float32"),
        "compile": (bool, "Compile the backbone with torch.compile.", ""),
    },
}


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of the table to a command (without names all, in panels), in place of its ``**options``.

    The command is called with those that were given, paths as text.
    """

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        *parameters, _ = inspect.signature(command, eval_str=True).parameters.values()
        own = [parameter.name for parameter in parameters]
        for panel, options in _TABLE.items():
            for name in (name for name in options if not names or name in names):
                kind, text, default, *flags = options[name]
                if kind is bool and not flags:
                    flags = [f"--{name.replace('_', '-')}"]  # without --no-...
                described = option(text, *flags, default=default, panel=None if names else panel)
                parameters.append(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=None,
                        annotation=Annotated[kind | None, described],  # type: ignore[valid-type]
                    )
                )

        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {name: v for name, v in values.items() if name not in own and v is not None}
            paths = {name: str(v) for name, v in given.items() if isinstance(v, Path)}
            command(**{name: values[name] for name in own}, **given | paths)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorator
