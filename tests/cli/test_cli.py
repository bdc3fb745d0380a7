"""The command line: adapt and predict from end to end, for people, for machines, and when interrupted."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import ba3us
from arrays_toys import NAMES, clouds
from ba3us.cli import app
from ba3us.errors import UserError, require
from ba3us.training import checkpoints

X, Y, XT, YT = clouds()
SMALL = ["--method", "ba3us", "--steps", "20"]
SMALL += ["--threads", "1", "--set", "bottleneck=8", "--set", "discriminator_hidden=8"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = np.array(["[bold]ant", "bee, or wasp", "cat", "dog"])
    np.savez("s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=names)
    np.savez("t.npz", features=XT, paths=[f"new/{i} [x].jpg" for i in range(len(XT))])
    np.save("s.npy", X)
    np.save("y.npy", Y)
    np.save("t.npy", XT)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, [*arguments], catch_exceptions=False)


def test_adapt_and_predict_for_machines(folder):
    done = run("adapt", "s.npz", "t.npz", "--out", "runs/new", *SMALL, "--json")
    assert done.exit_code == 0
    summary = json.loads(done.stdout)
    assert summary["run"] == "runs/new" and summary["method"] == "ba3us"
    assert set(summary["classes_present"]) <= {row["class"] for row in summary["classes"]}
    assert sum(row["proportion"] for row in summary["classes"]) == pytest.approx(1)
    done = run("predict", "runs/new", "t.npz", "--csv", "out.csv", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["rows"] == len(XT)
    with open("out.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["path"] for line in lines] == [f"new/{i} [x].jpg" for i in range(len(XT))]
    assert {line["class"] for line in lines} <= {"[bold]ant", "bee, or wasp", "cat", "dog"}


def test_adapt_and_predict_for_people(folder):
    done = run("adapt", "s.npz", "t.npz", "--out", "r", "--method", "source-only", "--steps", "60")
    assert done.exit_code == 0
    assert "of 4 classes 2 are present" in " ".join(done.stdout.split())
    assert "[bold]ant" in done.stdout and "cat" not in done.stdout  # names as they are, present ones only
    done = run("predict", "r", "t.npy", "--out", "out.csv")
    assert done.exit_code == 0 and "40 predictions" in done.stdout and "bee, or wasp" in done.stdout


def test_adapt_writes_its_page_unless_told_not_to(folder):
    done = run("adapt", "s.npz", "t.npz", "--out", "a", *SMALL, "--json")
    assert json.loads(done.stdout)["page"] == "a/report.html"
    page = (folder / "a" / "report.html").read_text(encoding="utf-8")
    assert "ba3us report a" in page and "bee, or wasp" in page  # the longer page is named
    done = run("adapt", "s.npz", "t.npz", "--out", "b", *SMALL, "--no-report", "--json")
    assert json.loads(done.stdout)["page"] is None and not (folder / "b" / "report.html").exists()


def test_a_page_that_can_not_be_written_does_not_cost_the_run(folder, monkeypatch):
    monkeypatch.setattr("ba3us.report.run_page.write_page", lambda *_: require(False, "The disk is full."))
    done = run("adapt", "s.npz", "t.npz", "--out", "a", *SMALL)
    assert done.exit_code == 0 and "of 4 classes" in " ".join(done.stdout.split())
    assert "its page was not written: The disk is full." in " ".join(done.stderr.split())
    assert (folder / "a" / "model.safetensors").is_file() and not (folder / "a" / "report.html").exists()


def test_tensorboard_shows_losses_and_scores(folder):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="an extra")
    for _ in range(2):
        few = ("--no-report", "--overwrite", "--tensorboard", "logs")
        assert run("adapt", "s.npz", "t.npz", "--out", "a", *SMALL, *few).exit_code == 0
    assert sorted(path.name for path in (folder / "logs").iterdir()) == ["ba3us-1", "ba3us-2"]
    seen = events.EventAccumulator(str(folder / "logs" / "ba3us-2")).Reload()
    assert {"step/loss", "step/lr", "target/entropy"} <= set(seen.Tags()["scalars"])
    assert [each.step for each in seen.Scalars("step/loss")] == [0, 10]
    history = pd.read_csv("a/history.csv")
    wanted = history["loss"].dropna().tolist()
    assert [each.value for each in seen.Scalars("step/loss")] == pytest.approx(wanted, rel=1e-5)
    (folder / "file").write_text("")
    with pytest.raises(UserError, match=r"file can't be made .*: choose another with `tensorboard`"):
        run("adapt", "s.npz", "t.npz", "--out", "b", *SMALL, "--tensorboard", "file")


def test_seed_settings_and_overwrite(folder):
    base = ("adapt", "s.npy", "t.npy", "--labels", "y.npy", *SMALL, "--out")
    weights = []
    for out, more in [("a", []), ("b", []), ("c", ["--seed", "1"]), ("d", ["--set", "beta=1e-3"])]:
        assert run(*base, out, *more).exit_code == 0
        weights.append((folder / out / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] and len(set(weights)) == 3
    assert run(*base, "a", "--seed", "1", "--overwrite").exit_code == 0
    assert (folder / "a" / "model.safetensors").read_bytes() == weights[2]


def test_help_names_every_option():
    text = " ".join(run("adapt", "--help").stdout.split())
    for option in ("--out", "--method", "--set", "--steps", "--seed", "--labels", "--overwrite", "--json"):
        assert option in text
    for option in ("--threads", "--standardize", "--no-standardize", "[default: (auto)]", "[default: report]"):
        assert option in text


def test_commands_are_listed_in_the_order_of_the_work():
    commands = typer.main.get_command(app).commands
    order = ["demo", "check", "adapt", "report", "predict", "export", "embed", "methods", "bench", "paper"]
    assert list(commands) == order


NO_VERBS = {
    "A",
    "An",
    "The",
    "Of",
    "Where",
    "Which",
    "What",
    "How",
    "When",
    "For",
    "With",
    "Only",
    "Also",
    "In",
    "At",
}


def test_help_texts_start_with_a_verb_and_end_with_a_stop():
    for name, command in typer.main.get_command(app).commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                text = parameter.help
                assert text.endswith(".") and text.split()[0] not in NO_VERBS and text[0].isupper(), (
                    name,
                    text,
                )


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_told_to_end_saves_and_says_how_to_go_on(folder, number, code):
    """A real process, stopped between two evaluations."""
    asked = ["adapt", "s.npz", "t.npz", *SMALL, "--steps", "50", "--set", "refresh_every=25"]
    # a run of other threads is another
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ba3us"]
    subprocess.run([*command, *asked, "--out", "whole"], env=env, check=True, capture_output=True)
    callback = (
        "from ba3us.training import ProgressBar as B\n"
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have had it ignored
        "def wait(self, trainer, step):\n"
        "    if step.number == 30: open('started', 'w').close(); time.sleep(1)\n"
        "B.on_step = wait\n"
        "sys.argv = ['ba3us', *sys.argv[1:]]\n"
        "from ba3us.cli import main; main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", callback, *asked, "--out", "r"],
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        deadline = time.monotonic() + 120
        while not (folder / "started").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == code and "Traceback" not in said
    advice = said.partition("Interrupted; go on with: ")[2].splitlines()[0]
    assert advice == shlex.join(["ba3us", *asked, "--out", "r", "--resume"])
    assert checkpoints.load(folder / "r" / "checkpoints" / "state.ckpt")["position"] == [0, 31]
    subprocess.run([*command, *shlex.split(advice)[1:]], env=env, check=True, capture_output=True)
    one, other = ((folder / out / "model.safetensors").read_bytes() for out in ("whole", "r"))
    assert one == other and not (folder / "r" / "checkpoints").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_command_repeats_from_the_spec_of_its_run(folder):
    assert run("adapt", "s.npz", "t.npz", *SMALL, "--seed", "4").exit_code == 0  # into runs/t
    assert run("adapt", "--config", "runs/t/spec.yaml", "--out", "again").exit_code == 0
    assert run("adapt", "--config", "runs/t/spec.yaml", "--out", "other", "--seed", "5").exit_code == 0
    assert run("adapt", "--config", "runs/t/spec.yaml", "--out", "dann", "--method", "dann").exit_code == 0
    first, again, other = (
        (folder / out / "model.safetensors").read_bytes() for out in ("runs/t", "again", "other")
    )
    assert first == again != other


def test_published_settings_are_named(folder):
    few = ("--steps", "3", "--set", "batch_size=6", "--threads", "1")
    done = run(
        "adapt", "s.npz", "t.npz", "--out", "a", "--protocol", "office31", "--task", "A->W", *few, "--json"
    )
    assert "office31" in json.loads(done.stdout)["settings"]
    tuned = run("adapt", "s.npz", "t.npz", "--out", "b", "--method", "pada", "--protocol", "office31", *few)
    assert "target labels" in " ".join(tuned.stdout.split())
    plain = run("adapt", "s.npz", "t.npz", "--out", "c", *few, "--json")
    assert "ba3us defaults" in json.loads(plain.stdout)["settings"]


def test_version_module_and_completion(folder):
    said = subprocess.run(
        [sys.executable, "-m", "ba3us", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"ba3us {ba3us.__version__}\n"
    assert "--install-completion" in run("--help").stdout


def test_progress_in_a_pipe_is_plain_lines(folder):
    command = [sys.executable, "-m", "ba3us", "adapt", "s.npz", "t.npz", "--out", "r", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line != "Loading torch"]
    assert lines[0].endswith("0/20") and len(lines) >= 2 and any("20/20" in line for line in lines)
    assert "\x1b" not in done.stderr


def test_methods_are_counted_and_labelled():
    rows = json.loads(run("methods", "--json").stdout)
    table = run("methods").stdout
    assert f"{len(rows)} methods" in table and "checked" in table
    (found,) = (row for row in rows if row["name"] == "ba3us")
    assert (found["losses"], found["settings"]) == ("checked", "ba3us defaults (3 differ)")
    departures = {"steps": 2000, "refresh_every": 200, "learning_rate": 1e-3, "released_quirks": True}
    assert found["published"]["office31"]["departures"] == departures
