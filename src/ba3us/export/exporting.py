"""From a run directory to an ONNX file and its card; what ``ba3us export`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ba3us.data.writing import check_new_file, new_file, new_files
from ba3us.engine import Run
from ba3us.engine import folder as files
from ba3us.errors import require
from ba3us.export import card as cards
from ba3us.export import onnx_file
from ba3us.export.rows import some_rows
from ba3us.export.served import Served, description
from ba3us.progress import say


def export(
    run: str | Path,
    out: str | Path,
    *,
    present_only: bool = False,
    card: str | Path | None = None,
    show: bool = False,
) -> dict[str, Any]:
    """Write the model of a run as an ONNX file, checked with onnxruntime, and a model card beside it.

    Parameters
    ----------
    run : path
        A folder that ``ba3us adapt`` wrote.
    out : path
        The ``.onnx`` file to write.
    present_only : bool
        Keep only the classes that the run calls present (or unsure), and give them all of the probability.
    card : path, optional
        Where to write the card; by default `out` with the suffix ``.md``.
    show : bool
        Say what is being done, on the standard error.
    """
    runtime = onnx_file.check_installed()
    folder, out = Path(run), Path(out)
    card = out.with_suffix(".md") if card is None else Path(card)
    require(out.suffix == ".onnx", f"The output {out} must end in .onnx.")
    require(
        card.resolve() != out.resolve(), f"The card {card} would lie over the model: name another place for it."
    )
    check_new_file(out)
    cards.check_new_card(card)
    done = Run.load(folder)
    classes = done.model.blueprint.classes
    presence = files.read_presence(folder / files.PRESENCE, classes)
    kept = _present(presence, folder) if present_only else None
    served = Served(done.model, kept)
    named = classes if kept is None else [classes[number] for number in kept]
    with new_files(out) as part, new_file(card) as page:
        say("Exporting", show)
        opset = onnx_file.write(part, served, description(done.model, named))
        rows = some_rows(done)
        far = onnx_file.difference(part, served, rows.inputs, rows.logits)
        facts = cards.Facts(out.name, done, served, named, presence, opset, runtime, far, rows.origin)
        page.write_text(cards.written(facts), encoding="utf-8")
        size = sum(file.stat().st_size for file in part.parent.iterdir())
    return {
        "run": str(folder),
        "onnx": str(out),
        "card": str(card),
        "bytes": size,
        "input": {
            "name": served.input,
            "type": str(served.dtype).removeprefix("torch."),
            "shape": ["n", *served.shape],
        },
        "classes": named,
        "largest_difference": far,
        "checked_on": rows.origin,
    }


def _present(presence: list[dict[str, str]], folder: Path) -> list[int]:
    """The numbers of the classes that are not called absent."""
    kept = [number for number, row in enumerate(presence) if row["present"] != "no"]
    require(bool(kept), f"The run {folder} calls no class present: leave --present-only out.")
    return kept
