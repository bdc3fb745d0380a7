"""Writing an ONNX file, and asking it what the run is asked."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ba3us.errors import UserError, optional_import, require
from ba3us.export.served import LOGITS, PROBABILITIES, Served

LIMIT = 1e-4  # by how much a probability may differ from the run's own
_LARGEST = 2_000_000_000  # bytes of weights that one ONNX file holds; protobuf ends at 2³¹


def check_installed() -> str:
    """Say before the work if a package is missing; returns the version of onnxruntime."""
    packages = [optional_import(package, "export") for package in ("onnx", "onnxscript", "onnxruntime")]
    return packages[-1].__version__


def write(path: Path, served: Served, about: Mapping[str, str]) -> int:
    """Write one file, or a second one beside it if its weights are too many; returns its opset."""
    try:
        with _quiet():
            program = torch.onnx.export(
                served,
                (torch.zeros(2, *served.shape, dtype=served.dtype),),
                input_names=[served.input],
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
    program.model.metadata_props.update(about)
    weights = sum(tensor.nbytes for tensor in served.state_dict().values())
    program.save(path, external_data=weights > _LARGEST)
    return program.model.opset_imports[""]


def difference(path: Path, served: Served, inputs: np.ndarray, logits: torch.Tensor) -> float:
    """How far a file's probabilities are from those of `logits`, at most; all rows at once and one alone."""
    wanted = logits if served.columns is None else logits[:, served.columns]
    probabilities = wanted.softmax(dim=1).numpy()
    runtime = optional_import("onnxruntime", "export")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    far = [
        np.abs(session.run([PROBABILITIES], {served.input: inputs[:count]})[0] - probabilities[:count]).max()
        for count in (len(inputs), 1)
    ]
    largest = float(np.max(far))
    require(
        largest <= LIMIT,  # false for NaN too
        f"The exported network gives probabilities that differ by {largest:.1e} from the run's, more than "
        f"{LIMIT:.0e}: nothing is written; use ba3us predict.",
    )
    return largest


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of itself on the way."""
    before: Any = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
