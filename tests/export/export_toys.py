"""Small runs to export, and what onnxruntime says of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arrays_toys import FAST, NAMES, clouds
from ba3us.adapt import adapt
from ba3us.run.spec import Spec

runtime = pytest.importorskip("onnxruntime", reason="needs the export extra")
pytest.importorskip("onnxscript", reason="needs the export extra")

X, Y, XT, _ = clouds()


def feature_run(folder: Path, names: Any = NAMES, method: str = "ba3us", **options: Any) -> Path:
    """A run on the small clouds, in ``folder/run``."""
    np.savez(folder / "s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=names)
    np.savez(folder / "new.npz", features=XT)
    spec = Spec(
        source=str(folder / "s.npz"),
        target=str(folder / "new.npz"),
        method=method,
        method_params={"steps": FAST["steps"]} | (options or FAST["method_params"]),
        n_threads=1,
    )
    adapt(spec, folder / "run")
    return folder / "run"


def session(path: Path) -> Any:
    """An exported file, opened."""
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata(path: Path) -> dict[str, str]:
    """What an exported file says of itself."""
    return session(path).get_modelmeta().custom_metadata_map


def classes(path: Path) -> list[Any]:
    """The classes of its columns."""
    return json.loads(metadata(path)["classes"])


def set_present(run: Path, **words: str) -> None:
    """Change a run's ``presence.csv``: a word for some classes."""
    path = run / "presence.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        name = line.split(",")[0]
        if name in words:
            lines[number] = f"{line.rsplit(',', 1)[0]},{words[name]}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
