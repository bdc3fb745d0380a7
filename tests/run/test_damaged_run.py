"""The tables and the spec of a run directory, spoilt: one sentence."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from arrays_toys import clouds
from ba3us import PartialAdapter
from ba3us.errors import UserError
from ba3us.run import storage
from ba3us.run.build import Model
from ba3us.run.run import Run

X, Y, XT, _ = clouds()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    PartialAdapter(steps=2, n_threads=1).fit(X, Y, XT).run_.save(path)
    return path


@pytest.mark.parametrize(
    ("file", "pattern", "other"),
    [
        ("results.json", r'"seconds": [\d.]+', '"seconds": "long"'),
        ("results.json", r'"evaluation": 2', '"evaluation": 1'),
        ("results.json", r"(?s).*", "3"),
        ("results.json", r"(?s).*", "[" * 100_000),
        ("spec.yaml", r"steps", "stops"),
        ("history.csv", r"adapt,0,", "adapt,0x1\x00,"),
        ("history.csv", r",step,", ",stdp,"),
        ("presence.csv", r"ant,", "ant,,,,,,,"),
        ("presence.csv", r"0\.", "0\udc99."),
        ("leaderboard.csv", r"SAFN", "\udc99"),
        ("leaderboard.csv", r"SAFN", '"SAFN'),
    ],
)
def test_a_spoilt_file_is_a_sentence(whole, tmp_path, file, pattern, other):
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (whole / file).read_text()
    assert re.search(pattern, text), text
    spoilt = re.sub(pattern, lambda _: other, text, count=1)
    (tmp_path / file).write_text(spoilt, errors="surrogateescape")
    assert Run.load(whole)
    with pytest.raises(UserError) as caught:
        Run.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_of_the_results_is_refused_or_changes_nothing(whole):
    digest, content = Model.load(whole / storage.MODEL).digest, (whole / storage.RESULTS).read_bytes()
    path, results = whole.parent / "flipped.json", storage.read_results(whole / storage.RESULTS, digest)
    assert results["calibration"]["temperature"] > 0
    refused = 0
    for bit in np.random.default_rng(0).choice(8 * len(content), 1_000, replace=False):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            unchanged = storage.read_results(path, digest) == results
        except UserError as error:
            unchanged, refused = "\n" not in str(error), refused + 1
        assert unchanged
    assert refused > 900  # white space may change


def test_results_of_another_model_are_refused(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    PartialAdapter(steps=2, n_threads=1, random_state=1).fit(X, Y, XT).run_.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / storage.RESULTS, tmp_path / "run" / storage.RESULTS)
    with pytest.raises(UserError, match="damaged, or belong to another model"):
        Run.load(tmp_path / "run")
