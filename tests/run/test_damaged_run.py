"""The tables and the spec of a run directory, spoilt: one sentence."""

from __future__ import annotations

import re

import pytest

from arrays_toys import clouds
from ba3us import PartialAdapter
from ba3us.errors import UserError
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
        ("spec.yaml", r"seconds: [\d.]+", "seconds: long"),
        ("spec.yaml", r"source_rows: \d+", "source_rows: []"),
        ("spec.yaml", r"evaluation: 2", "evaluation: 7"),
        ("spec.yaml", r"(?s)about:.*", "about: 3"),
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
