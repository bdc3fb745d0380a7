"""A rehearsal of the paper on generated images: every command leaves its files."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from benchmarks import generated_datasets
from safetensors.torch import save_file
from typer.testing import CliRunner

from ba3us.bench import study
from ba3us.bench.database import Database
from ba3us.bench.workers import attempt
from ba3us.cli import app
from ba3us.errors import UserError
from ba3us.paper.produce import Order, Product, produce

timm = pytest.importorskip("timm", reason="needs the vision extra")
pytest.importorskip("PIL.Image", reason="needs the vision extra")
pytest.importorskip("matplotlib", reason="needs the paper extra")
FAST = {"steps": 3, "batch_size": 8, "bottleneck": 8, "refresh_every": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """All three datasets, with one or two images of a class."""
    root = tmp_path_factory.mktemp("data")
    for protocol in ("office31", "office-home", "imagenet-caltech"):
        generated_datasets.generate(protocol, root, fraction=1e-6, minimum=1)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), root / "w.safetensors")
    return root


@pytest.fixture
def order(data, tmp_path, monkeypatch) -> Order:
    """Runs in this process, on one core."""

    def run(jobs, workers, work, on_progress):
        return ((job, attempt(work, job)) for job in jobs)

    monkeypatch.setattr(study, "run_local", run)
    seen = {"backbone": "test_resnet", "weights": str(data / "w.safetensors"), "size": 32, "device": "cpu"}
    named = {"out": tmp_path / "out", "database": tmp_path / "p.sqlite", "root": data}
    return Order(**named, seeds=1, options=FAST, images=seen, skip_count_check=True)


def changed(order: Order, **fields: object) -> Order:
    return Order(**{**vars(order), **fields})


def names(product: Product) -> list[str]:
    assert all(path.stat().st_size > 0 for path in product.files)
    return sorted(path.name for path in product.files)


def test_tables_of_two_datasets_with_the_papers_numbers(order):
    few = changed(order, methods="source-only,pada,sspda,BA3US", tasks="D->W,I->C,C->I")
    assert names(produce("table2", few)) == ["table2.csv", "table2.md", "table2.tex"]
    text = (order.out / "table2.md").read_text()
    assert "| ResNet-50 |" in text and "| BA³US, paper |" in text and "SSPDA" in text
    assert "failed runs" not in text and "Samples were not counted." in text
    with Database(order.database) as database:
        runs = database.table()
    assert len(runs) == 4 + 2 * 3 and set(runs["outcome"]) == {"ok"}
    produce("table2", few)
    with Database(order.database) as database:
        assert (database.table()["finished"] == runs["finished"]).all()  # nothing is run again


def test_vgg_and_closed_set_and_sweep(order):
    assert "table3.tex" in names(produce("table3", changed(order, methods="VGG-16,ETN", tasks="D->W")))
    assert "VGG-16" in (order.out / "table3.md").read_text()
    produce("table4", changed(order, methods="CDAN+TransNorm*,SAFN*,BA³US", tasks="Ar->Cl"))
    assert "| SAFN*, paper | 54.40 | 68.50 |" in (order.out / "table4.md").read_text()
    produce("table6", changed(order, tasks="D->W"))
    text = (order.out / "table6.md").read_text()
    assert (
        "BA³US (beta=10.0)" in text and ", paper |" not in text
    )  # one of six tasks: no average to compare with
    with Database(order.database) as database:
        runs = database.table()
        swept = runs[runs["label"].str.contains("beta")]["key"]
        betas = {database.run(key).spec["options"]["beta"] for key in swept}
    assert betas == {0.0, 0.1, 0.5, 1.0, 5.0, 10.0}


def test_figures_from_kept_runs(order):
    few = changed(order, methods="Source only,BA3US")
    files = names(produce("figure3", few))
    assert files == sorted(f"figure3{letter}.{s}" for letter in "abc" for s in ("pdf", "png", "csv"))
    by_classes = pd.read_csv(order.out / "figure3a.csv")
    assert sorted(by_classes["classes"].unique()) == [5, 10, 15, 25, 35, 45, 55, 65]
    weights = pd.read_csv(order.out / "figure3c.csv")
    assert len(weights) == 31 and weights["true"].sum() == 10
    assert weights["BA3US, A->D"].sum() == pytest.approx(1, abs=1e-5)
    assert names(produce("figure4", few)) == ["figure4.csv", "figure4.pdf", "figure4.png"]
    curves = pd.read_csv(order.out / "figure4.csv")
    assert curves.groupby(["task", "method"])["selected"].sum().eq(1).all()
    assert curves.groupby(["task", "method"])["updates"].max().eq(3).all()
    assert names(produce("figure5", few)) == ["figure5.csv", "figure5.pdf", "figure5.png"]
    points = pd.read_csv(order.out / "figure5.csv")
    assert set(points["task"]) == {"A->D", "Ar->Cl"} and set(points["method"]) == {"Source only", "BA3US"}
    source = points[(points["task"] == "A->D") & (points["method"] == "BA3US") & (points["domain"] == "source")]
    assert source["label"].nunique() == 31 and (source["label"].diff().dropna() >= 0).all()  # by class folder


def test_a_picture_of_samples_is_not_trained_for_twice(order, monkeypatch):
    few = changed(order, methods="BA3US", tasks="A->D")
    produce("figure4", few)
    with Database(order.database) as database:
        before = database.table()
        assert database.outcomes() and not database.outcomes(with_points=True)
    produce("figure5", few)  # the run of figure 4 has no points
    with Database(order.database) as database:
        assert database.table().equals(before)  # what was there stays as it was
    first = (order.out / "figure5.csv").read_bytes()
    monkeypatch.setattr(study, "run_local", lambda jobs, *_, **__: iter([pytest.fail(j.label) for j in jobs]))
    produce("figure5", few)
    assert (order.out / "figure5.csv").read_bytes() == first


def test_a_picture_without_one_of_its_runs_is_refused(order):
    few = changed(order, methods="BA3US", tasks="A->D", options={**FAST, "learning_rate": 1e20})
    with pytest.raises(UserError, match=r"BA3US on A->D failed \(.*\): leave it out"):
        produce("figure5", few)
    assert not order.out.exists()


def test_numbers_of_classes_that_a_protocol_has_not_are_left_out(order, tmp_path):
    there = {"protocol": "digits", "tasks": "D->M", "root": tmp_path, "images": {}, "methods": "BA3US"}
    produce("figure3", changed(order, **there, skip_count_check=False))
    assert sorted(pd.read_csv(order.out / "figure3a.csv")["classes"].unique()) == [1, 2, 3, 4, 5, 7, 10]


def test_the_command_on_another_protocol_from_features(tmp_path):
    words = ["--protocol", "digits", "--root", tmp_path, "--tasks", "D->M", "--methods", "Source only,BA3US"]
    more = ["--seeds", 1, "--steps", 3, "--set", "batch_size=4", "--db", tmp_path / "p.sqlite", "--workers", 1]
    call = ["paper", "figure4", *words, *more, "--out", tmp_path / "out", "--json"]
    said = CliRunner().invoke(app, [str(word) for word in call])
    assert said.exit_code == 0, said.output
    assert [Path(f).name for f in json.loads(said.stdout)["written"]] == [
        "figure4.pdf",
        "figure4.png",
        "figure4.csv",
    ]


def test_failed_runs_end_the_command_with_code_1(tmp_path):
    words = ["--protocol", "digits", "--root", tmp_path, "--tasks", "D->M", "--methods", "E-DANN,BA3US"]
    more = ["--seeds", 1, "--steps", 30, "--set", "e-dann.learning_rate=1e30", "--db", tmp_path / "p.sqlite"]
    call = ["paper", "table2", *words, *more, "--workers", 1, "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, [str(word) for word in call])
    assert result.exit_code == 1
    assert "1 of 2 runs failed: add --retry-failed" in result.stderr
    assert "failed runs" in (tmp_path / "out" / "table2.md").read_text()
    assert CliRunner().invoke(app, [str(word) for word in [*call, "--retry-failed"]]).exit_code == 1


def test_drawings_need_no_data(tmp_path):
    assert names(produce("figure1", Order(out=tmp_path))) == ["figure1.pdf", "figure1.png"]
    assert len(produce("figure2", Order(out=tmp_path)).files) == 3


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("table7", {}, "no 'table7' in the paper"),
        ("table1", {}, "Domain 'Ar' of office-home is not in"),
        ("table2", {"tasks": "A->X"}, "table2 has no task 'A->X'"),
        ("table2", {"methods": "jumbot"}, "table2 has no method 'jumbot'"),
        ("table2", {"methods": "sspda", "tasks": "I->C"}, "table2 has no method 'sspda'"),
        ("table4", {"methods": "SAFN*"}, "nothing to run for SAFN"),
        ("figure4", {"protocol": "pacs"}, "There is no protocol 'pacs'"),
    ],
)
def test_what_a_user_may_get_wrong(tmp_path, name, fields, words):
    with pytest.raises(UserError, match=words):
        produce(name, Order(root=tmp_path, out=tmp_path, database=tmp_path / "p.sqlite", **fields))
