"""``ba3us export``: from a run directory to an ONNX file, checked with onnxruntime, and its model card."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ba3us import __version__
from ba3us.data.writing import check_new_file, new_file, new_files
from ba3us.errors import UserError, optional_import, require
from ba3us.export import card as cards
from ba3us.progress import say
from ba3us.run import storage as files
from ba3us.run.build import Model
from ba3us.run.run import Run

PROBABILITIES, LOGITS = "probabilities", "logits"
LIMIT = 1e-4  # by how much a probability may differ from the run's own
_LARGEST = 2_000_000_000  # bytes of weights that one ONNX file holds; protobuf ends at 2³¹
_EXAMPLES = 8


class Examples(NamedTuple):
    """Samples as the exported file takes them, the run's own logits for them, and where they are from."""

    inputs: np.ndarray
    logits: torch.Tensor
    origin: str


def examples(run: Run) -> Examples:
    """Take a few samples of the run's target, or random ones if it can't be read."""
    samples = run.model.blueprint.samples
    try:
        require(run.spec.target is not None, "The run was given arrays, which are not on disk.")
        raw = samples.read_some(run.spec, _EXAMPLES)
        origin = f"{len(raw)} samples of the target"
    except (UserError, OSError):
        raw, origin = (
            samples.random_inputs(_EXAMPLES),
            f"{_EXAMPLES} random samples, because the target can't be read",
        )
    inputs, domain = samples.example(raw, run.model.front)
    return Examples(inputs, torch.cat([logits for _, logits in run.model.outputs(domain)]), origin)


class InferenceModel(nn.Module):
    """One network from samples to probabilities and logits of some classes, both float32 [n, classes].

    It does all that ``ba3us predict`` does after an image is cropped: normalisation, the frozen front and the
    method's own way to predict.

    Parameters
    ----------
    model : Model
        The model of a run. It is put into eval mode.
    classes : sequence of int, optional
        The columns to keep, with probabilities that sum to one again. All by default.
    """

    columns: Tensor | None

    def __init__(self, model: Model, classes: Sequence[int] | None = None) -> None:
        super().__init__()
        self.front, self.module, self.samples = model.front, model.module, model.blueprint.samples
        self.register_buffer("columns", None if classes is None else torch.tensor(classes))
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute (probabilities, logits) of uint8 pixels [n, 3, size, size] or float32 arrays [n, …]."""
        dtype, x = next(self.module.parameters()).dtype, self.samples.preprocess(x)
        if self.front is not None:
            x = self.front(x)
        logits = self.module.method.predict(self.module.network, x.to(dtype))[1]
        logits = logits if self.columns is None else logits[:, self.columns]
        return logits.softmax(dim=1).float(), logits.float()


def description(model: Model, classes: list[Any]) -> dict[str, str]:
    """Describe the model for the metadata of the file, as texts; lists and tables are JSON."""
    metadata: dict[str, Any] = {
        "ba3us_version": __version__,
        "model_digest": model.digest,
        "method": model.blueprint.method,
        "classes": json.dumps(classes),
    }
    preparation = model.blueprint.samples.preparation()
    return metadata | ({"image": json.dumps(preparation)} if preparation else {})


def check_installed() -> str:
    """Fail before the work if a package is missing; return the version of onnxruntime."""
    packages = [optional_import(package, "export") for package in ("onnx", "onnxscript", "onnxruntime")]
    return packages[-1].__version__


def write(path: Path, network: InferenceModel, metadata: Mapping[str, str]) -> int:
    """Write one file, or a second one beside it if its weights are too many; return its opset."""
    try:
        with _quiet():
            program = torch.onnx.export(
                network,
                (torch.zeros(2, *network.samples.input_shape, dtype=network.samples.input_dtype),),
                input_names=[network.samples.input_name],
                output_names=[PROBABILITIES, LOGITS],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # any operation of any backbone may have no translation
        raise UserError(
            f"The network can't be exported ({type(error).__name__}: torch's exporter does not know one of its "
            f"operations): choose another backbone or method."
        ) from error
    assert program is not None
    # else every node carries the paths of the source files it came from
    optional_import("onnx_ir.passes.common", "export").ClearMetadataAndDocStringPass()(program.model)
    program.model.metadata_props.update(metadata)
    weights = sum(tensor.nbytes for tensor in network.state_dict().values())
    program.save(path, external_data=weights > _LARGEST)
    return program.model.opset_imports[""]


def difference(path: Path, network: InferenceModel, inputs: np.ndarray, logits: torch.Tensor) -> float:
    """Return the largest difference to the probabilities of `logits`, for all samples at once and one alone."""
    expected = logits if network.columns is None else logits[:, network.columns]
    probabilities = expected.softmax(dim=1).numpy()
    runtime = optional_import("onnxruntime", "export")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    differences = [
        np.abs(
            session.run([PROBABILITIES], {network.samples.input_name: inputs[:count]})[0]
            - probabilities[:count]
        ).max()
        for count in (len(inputs), 1)
    ]
    largest = float(np.max(differences))
    require(
        largest <= LIMIT,  # false for NaN too
        f"The exported network gives probabilities that differ by {largest:.1e} from the run's, more than "
        f"{LIMIT:.0e}: nothing is written; use ba3us predict.",
    )
    return largest


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's exporter."""
    before: Any = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


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
        Keep only the classes that the run calls present or uncertain, and give them all of the probability.
    card : path, optional
        File of the card; by default `out` with the suffix ``.md``.
    show : bool
        Show progress on the standard error.
    """
    runtime = check_installed()
    folder, out = Path(run), Path(out)
    card = out.with_suffix(".md") if card is None else Path(card)
    require(out.suffix == ".onnx", f"The output {out} must end in .onnx.")
    require(card.resolve() != out.resolve(), f"The card {card} is the model file itself: give it another name.")
    check_new_file(out)
    cards.check_new_card(card)
    loaded = Run.load(folder)
    classes = loaded.model.blueprint.classes
    presence = files.read_presence(folder / files.PRESENCE, classes)
    kept_classes = None
    if present_only:
        kept_classes = [number for number, row in enumerate(presence) if row["present"] != "absent"]
        require(
            bool(kept_classes), f"The run {folder} has no present or uncertain class: leave `present_only` out."
        )
    network = InferenceModel(loaded.model, kept_classes)
    names = classes if kept_classes is None else [classes[number] for number in kept_classes]
    with new_files(out) as part, new_file(card) as page:
        say("Exporting", show)
        opset = write(part, network, description(loaded.model, names))
        samples = examples(loaded)
        largest = difference(part, network, samples.inputs, samples.logits)
        facts = cards.Facts(out.name, loaded, names, presence, opset, runtime, largest, samples.origin)
        page.write_text(cards.render(facts), encoding="utf-8")
        size = sum(file.stat().st_size for file in part.parent.iterdir())
    return {
        "run": str(folder),
        "onnx": str(out),
        "card": str(card),
        "bytes": size,
        "input": {
            "name": network.samples.input_name,
            "type": str(network.samples.input_dtype).removeprefix("torch."),
            "shape": ["n", *network.samples.input_shape],
        },
        "classes": names,
        "largest_difference": largest,
        "checked_on": samples.origin,
    }
