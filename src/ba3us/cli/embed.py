"""``ba3us embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, show
from ba3us.cli.memory import keep_memory


@app.command()
def embed(
    images: Annotated[
        Path, typer.Argument(help="A folder of class folders, a folder of images, or a list file.")
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    backbone: Annotated[
        str,
        typer.Option(help="A timm name; resnet50 and vgg16 are the paper's, efficientnet_lite0 is offline."),
    ] = "efficientnet_lite0",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors or .pth file with weights.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the paths of a list file start.")] = None,
    classes: Annotated[Path | None, typer.Option(help="Class names of a list file, one per line.")] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Take no labels from the folders.")] = False,
    workers: Annotated[int, typer.Option(help="Threads (0: one per core).", min=0)] = 0,
    cache_gb: Annotated[float, typer.Option(help="What the cache of decoded images may hold.")] = 10.0,
    json: Json = False,
) -> None:
    """Turn images into features, once and for all: a .npz file for adapt, predict and bench."""
    from ba3us.embedding import embed_to_file

    keep_memory()
    summary = embed_to_file(
        images,
        out,
        backbone=backbone,
        weights=weights,
        root=root,
        classes=classes,
        labelled=False if unlabelled else None,
        workers=workers or None,
        cache_gb=cache_gb,
        progress=not json,
    )
    table = Table("", "", title="Features", show_header=False)
    for key, value in summary.items():
        if value is not None:
            table.add_row(key.replace("_", " "), str(value))
    show(summary, json, table)
