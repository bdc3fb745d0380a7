"""Several processes and one run: the same numbers as one process, and a run that is killed and resumed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import distributed

from ba3us.errors import UserError
from ba3us.training import Execution
from ba3us.training import distributed as devices
from ba3us.training.distributed import ProcessGroup
from device_jobs import FEATURES, JOBS, LENGTHS, built, together

TRAINED = [*FEATURES, "ba3us with borrowed rows", "ba3us with warm-up"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What two processes say of every job."""
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    return together(tmp_path_factory.mktemp("team"))


def difference(a, b) -> float:
    """The largest difference between the numbers of two nested results of one shape."""
    assert type(a) is type(b), b
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        return max((difference(a[key], b[key]) for key in a), default=0.0)
    if isinstance(a, list):
        assert len(a) == len(b)
        return max((difference(x, y) for x, y in zip(a, b)), default=0.0)
    assert a.shape == b.shape and a.dtype == b.dtype
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


# --- training --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINED)
def test_two_processes_equal_one_with_the_joint_batch(both, name):
    alone = JOBS[name]()
    for result in both:
        assert difference(alone, result[name]) < 1e-9  # float64; the promise is 1e-6


def test_the_comparison_would_notice(both):
    """The weights moved, rows were borrowed by fewer than all processes, and another seed is not the same."""
    result = both[0]["ba3us with borrowed rows"]
    start = dict(zip(("network", "method"), built("ba3us")))
    moved = [
        float((value - result["states"]["last"][f"{part}.{key}"]).abs().max())
        for part, module in start.items()
        for key, value in module.state_dict().items()
        if key != "class_weights"
    ]
    assert min(moved) > 1e-4
    assert set(result["borrowed"].tolist()) == {3} and ProcessGroup(0, 2).sizes(3) == [3, 0]
    assert difference(both[0]["ba3us"]["states"], both[0]["ba3us with warm-up"]["states"]) > 1e-4


@pytest.mark.parametrize("name", ["batch norm", "dropout", "ba3us"])
def test_the_processes_never_drift_apart(both, name):
    """Also where each has statistics or random numbers of its own."""
    assert difference(both[0][name], both[1][name]) == 0


def test_batch_norm_sees_the_rows_of_its_process(both):
    assert difference(JOBS["batch norm"]()["states"], both[0]["batch norm"]["states"]) > 1e-6


def test_dropout_in_the_network_differs_between_processes_and_steps(both):
    losses = both[0]["dropout"]["losses"]
    assert losses.isfinite().all() and len(losses.unique()) == len(losses)
    step = [torch.empty(0)] * 4
    for i, (rank, number) in enumerate([(0, 0), (1, 0), (0, 1), (0, 0)]):
        torch.manual_seed(5)
        at = type("Step", (), {"phase": "adapt", "number": number})
        with ProcessGroup(rank, 2).apart(at):
            step[i] = torch.rand(3)
        after = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(after, torch.rand(3))  # as if nothing had been drawn
    assert torch.equal(step[0], step[3])
    assert not torch.equal(step[0], step[1]) and not torch.equal(step[0], step[2])


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ("a small batch", "The batch_size is 3 for 2 processes, which share it: make it at least 4"),
        (
            "other data",
            r"The processes of this run differ in rows, .*: \[10, .* in the first, \[11, .* number 1",
        ),
    ],
)
def test_what_cannot_be_shared_is_one_sentence_in_all_processes(both, job, sentence):
    assert all(re.match(sentence, result[job]) for result in both)


# --- looking at a whole domain ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_shared_prediction_gives_every_row_once_and_in_order(both, length):
    alone = JOBS[f"{length} rows"]()
    assert [len(r["logits"]) for r in alone] == [length] * 3
    for result in both:
        assert difference(alone, result[f"{length} rows"]) < 1e-12


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_shares_cover_all_rows_and_leave_none_on_its_own(size):
    for count in (0, 1, 2, 3, 7, 36, 37):
        rows = [np.arange(count)[ProcessGroup(rank, size).share(count)] for rank in range(size)]
        assert np.array_equal(np.concatenate(rows), np.arange(count))
        sizes = [len(r) for r in rows]
        assert sizes == ProcessGroup(0, size).sizes(count)
        assert 1 not in sizes or count == 1
        assert max(sizes) - min(s for s in sizes if s or not count) <= 1


# --- what is asked for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("tpu", None, None), "Unknown accelerator 'tpu'"),
        (("cpu", "0", None), "The number of devices is '0': give 1 or more"),
        (("cpu", "many", None), "The number of devices is 'many'"),
        (("cpu", 2, -1), "The number of nodes is -1"),
    ],
)
def test_bad_layouts_are_sentences(asked, sentence):
    with pytest.raises(UserError, match=sentence):
        devices.layout(*asked)


def test_the_launcher_decides(monkeypatch):
    assert devices.layout("cpu", None, None) == devices.Layout("cpu", 1, 1)
    assert devices.layout("cpu", "auto", 2) == devices.Layout("cpu", 1, 2)
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    for asked in ((None, None), ("auto", None), (4, 2), (None, 2)):
        assert devices.layout("cpu", *asked) == devices.Layout("cpu", 4, 2)
    with pytest.raises(UserError, match=r"started 4 .* of 2 nodes, 3 devices on 2 were requested"):
        devices.layout("cpu", 3, None)
    # a run that does not ask for company is alone
    assert devices.start(Execution(accelerator="cpu"))[1] == ProcessGroup()


# --- the command line ------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch):
    """What comes after ``python`` to adapt to a few images; the run's folder follows."""
    timm = pytest.importorskip("timm", reason="needs the vision extra")
    image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "w.safetensors")
    noise = np.random.default_rng(0)
    for number in range(12):
        for folder in (f"s/{'abc'[number % 3]}", "t"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            pixels = noise.integers(0, 200, (20, 20, 3)) + 20 * (number % 3)
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / folder / f"{number}.png")
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small = {"batch_size": 8, "bottleneck": 5, "discriminator_hidden": 7, "refresh_every": 3}
    sets = [part for name, value in small.items() for part in ("--set", f"{name}={value}")]
    adapt = ["-m", "ba3us", "adapt", str(tmp_path / "s"), str(tmp_path / "t"), "--backbone", "test_resnet"]
    adapt += [
        "--weights",
        str(tmp_path / "w.safetensors"),
        "--size",
        "32",
        "--train",
        "all",
        "--json",
        "--method",
        "ba3us",
    ]
    return [*adapt, "--accelerator", "cpu", "--steps", "60", *sets, "--out"]


def kill(process):
    """At once, torchrun and its workers, which are in sessions of their own."""
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    for pid in [process.pid, *map(int, workers)]:
        os.kill(pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep to find torchrun's workers")
def test_a_run_under_torchrun_that_is_killed_goes_on(command, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, *command]
    whole = subprocess.run([*command, str(tmp_path / "whole")], capture_output=True, text=True, check=True)
    assert json.loads(whole.stdout)["resumed"] is False  # one process talks, and nothing else is on stdout

    out = tmp_path / "killed"
    process = subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not (out / "checkpoints" / "state.ckpt").exists():
        time.sleep(0.02)
    kill(process)
    assert [path.name for path in out.iterdir()] == ["checkpoints"]

    resumed = subprocess.run([*command, str(out), "--resume"], capture_output=True, text=True, check=True)
    assert json.loads(resumed.stdout)["resumed"] is True
    assert not (out / "checkpoints").exists()
    for name in ("model.safetensors", "history.csv", "predictions.csv", "presence.csv"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_error_in_processes_we_started_is_said_once(command, tmp_path):
    bad = [sys.executable, *command, str(tmp_path / "x"), "--devices", "2", "--set", "nonsense=1"]
    failed = subprocess.run(bad, capture_output=True, text=True)
    assert failed.returncode and failed.stdout == ""
    assert failed.stderr.count("ba3us: Unknown option 'nonsense'") == 1
