"""The thin benchmark: protocols, resuming, tables."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from ba3us import bench
from ba3us.errors import UserError

NAMES = ["ant", "bee", "cat"]
FAST = {"steps": 4, "batch_size": 4, "bottleneck": 4, "discriminator_hidden": 4}


@pytest.fixture
def protocol(tmp_path):
    generator = np.random.default_rng(0)
    for name, names in (("one", NAMES), ("two", NAMES[::-1])):  # the second numbers its classes the other way
        labels = np.arange(30) % 3
        own = np.array([NAMES.index(n) for n in names])[labels]
        features = (np.eye(3)[own] * 5 + generator.normal(size=(30, 3))).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", features=features, labels=labels, class_names=np.array(names))
    text = "name: toy\ndomains: {P: one.npz, Q: two.npz}\ntasks: [P->Q, Q->P]\ntarget_classes: [ant, cat]\n"
    (tmp_path / "toy.yaml").write_text(text)
    return bench.read_protocol(tmp_path / "toy.yaml")


def test_targets_are_restricted_and_renumbered_by_class_name(protocol):
    source, target, labels = protocol.load(bench.Task("P", "Q"))
    assert source.num_classes == 3
    assert len(target) == len(labels) == 20
    assert set(labels.tolist()) == {NAMES.index("ant"), NAMES.index("cat")}
    nearest = target.batch(slice(None)).argmax(dim=1).numpy()
    assert (nearest == labels).mean() > 0.9  # features point at the source's number of the class


def test_finished_runs_are_not_run_again(protocol, tmp_path, monkeypatch):
    todo = bench.jobs(protocol, ["source-only", "ba3us"], seeds=2, options=FAST)
    assert len(todo) == 8
    out = tmp_path / "rows.jsonl"
    first = bench.run(protocol, todo, out, workers=1, quiet=True)
    assert len(out.read_text().splitlines()) == 8
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:5]) + "\n")
    again = bench.run(protocol, todo, out, workers=1, quiet=True)
    assert out.read_text().splitlines()[:5] == lines[:5]
    columns = ["label", "task", "seed", "last", "min-entropy", "oracle"]
    pd.testing.assert_frame_equal(first[columns], again[columns])
    assert (first["oracle"] >= first["min-entropy"]).all()
    assert (first["cpu_seconds"] > 0).all()
    assert all("classification" in figures for figures in first["figures"])


def _row(label, task, seed, value, **other):
    accuracies = {"min-entropy": value, "last": value, "oracle": 1.0}
    cost = {"updates": 10, "seconds": 2.0, "cpu_seconds": 0.04}
    rest = {"method": label, "absent": 0.1, "lost": 0.0}
    return {"label": label, "task": task, "seed": seed, **accuracies, **cost, **rest, **other}


def test_tables():
    values = (("x", 0, 0.5), ("x", 1, 0.7), ("y", 0, 0.9), ("y", 1, 0.9))
    rows = pd.DataFrame([_row("dann", *value) for value in values])
    table = bench.summarise(rows)
    assert table.loc["dann"].to_dict() == {"x": "60.0 ± 10.0", "y": "90.0 ± 0.0", "Avg": "75.00 ± 5.00"}
    assert bench.overview(rows).loc["dann", "oracle"] == "100.00"
    assert "× source-only" not in bench.overview(rows)
    assert bench.markdown(table).splitlines()[-1] == "| dann | 60.0 ± 10.0 | 90.0 ± 0.0 | 75.00 ± 5.00 |"


def test_cost_and_mistakes_stand_beside_source_only():
    plain = [_row("source-only", task, seed, 0.6) for task in "xy" for seed in (0, 1)]
    values = (("x", 0, 0.5), ("x", 1, 0.6), ("y", 0, 0.9), ("y", 1, 0.8))
    more = {"cpu_seconds": 0.1, "absent": 0.25, "lost": 2.0}
    rows = pd.DataFrame([*plain, *(_row("twins", *value, **more) for value in values)])
    assert list(bench.overview(bench.ranked(rows)).index) == ["twins", "source-only"]
    cost = bench.overview(rows).loc["twins", ["losses", "ms/update", "× source-only"]]
    assert cost.tolist() == ["reconstruction", "10.0", "2.5"]
    found = bench.mistakes(rows)
    assert found.loc["twins"].to_dict() == {"below": "1 of 4", "absent": "25.0", "lost": "4"}
    assert found.loc["source-only"].to_dict() == {"below": "0 of 4", "absent": "10.0", "lost": "0"}
    assert "below" not in bench.mistakes(rows[rows["label"] == "twins"])


def test_an_option_may_be_one_methods_own(protocol):
    made = bench.jobs(protocol, ["dann", "pada"], 1, {"steps": 4, "pada.steps": 6, "pada.tau": 2.0})
    assert {job.method: job.options for job in made} == {"dann": {"steps": 4}, "pada": {"steps": 6, "tau": 2.0}}
    with pytest.raises(UserError, match=r"'dann\.tau' belongs to none"):
        bench.jobs(protocol, ["pada"], 1, {"dann.tau": 2.0})
    with pytest.raises(UserError, match="Unknown option 'tau'"):
        bench.jobs(protocol, ["dann"], 1, {"dann.tau": 2.0})


def test_settings_and_methods():
    assert bench.parse_settings(["beta=1", "trust=full", "bottleneck=null"]) == {
        "beta": 1,
        "trust": "full",
        "bottleneck": None,
    }
    assert "sspda" not in bench.chosen_methods("all")
    assert bench.chosen_methods("ba3us, dann") == ["ba3us", "dann"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: bench.parse_settings(["beta"]), "name=value"),
        (lambda p: bench.chosen_methods("ba3uss"), "did you mean 'ba3us'"),
        (lambda p: bench.jobs(p, ["dann"], 0, {}), "seeds is 0"),
        (lambda p: bench.jobs(p, ["dann"], 1, {"alpha": 1.0}), "'alpha'"),
        (lambda p: bench.jobs(p, ["sspda"], 1, {}), "needs pixels"),
        (lambda p: bench.read_protocol("nowhere.yaml"), "no protocol"),
    ],
)
def test_mistakes_are_sentences(protocol, call, words):
    with pytest.raises(UserError, match=words):
        call(protocol)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks: [A->B]", "no domains"),
        ("domains: {A: a.npz}\ntasks: [A->B]", "names 'B'"),
        ("domains: {A: a.npz}\ntasks: [A]", "form A->B"),
        ("domain: {A: a.npz}", "did you mean 'domains'"),
        ("[", "not valid YAML"),
        ("3", "must be a mapping"),
    ],
)
def test_bad_protocols_are_sentences(tmp_path, text, words):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        bench.read_protocol(path)


def test_damaged_results_name_the_line(protocol, tmp_path):
    out = tmp_path / "rows.jsonl"
    row = dict.fromkeys(("key", "updates", "seconds", "cpu_seconds", "absent", "lost"), 0)
    out.write_text(json.dumps(row) + "\n{broken\n")
    with pytest.raises(UserError, match=r"Line 2 of .* is damaged"):
        bench.run(protocol, bench.jobs(protocol, ["dann"], 1, FAST), out, quiet=True)
    out.write_text(json.dumps({**row, "seed": 1}) + "\n" + json.dumps({"key": 0}) + "\n")
    with pytest.raises(UserError, match=r"Line 2 of .* has no 'updates'.*another --out"):
        bench.run(protocol, bench.jobs(protocol, ["dann"], 1, FAST), out, quiet=True)
