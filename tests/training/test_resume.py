"""Checkpoints: a resumed run equals one that was never interrupted; damage is a sentence."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import zipfile

import pytest
import torch
from torch import nn

from ba3us.errors import UserError
from ba3us.training import Callback, Execution, checkpoints
from toys import WIDTH, assert_same_run, blobs, trainer


class InterruptedRunError(Exception):
    """What stands for a killed process."""


class StopAt(Callback):
    """Raises after an update, or after an evaluation, of a phase."""

    def __init__(self, event, phase, number):
        self.event, self.at = event, (phase, number)

    def on_step(self, trainer, step):
        if (self.event, self.at) == ("step", (step.phase, step.number)):
            raise InterruptedRunError

    def on_evaluation(self, trainer, evaluation):
        if (self.event, self.at) == ("evaluation", (evaluation.phase, evaluation.step)):
            raise InterruptedRunError


def batch_norm():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.3))


def config(path, every=None, **options):
    return Execution(n_threads=1, log_every=1, checkpoint=path, checkpoint_every=every, **options)


def interrupted_then_resumed(path, stops, every=None, evaluate_every=None, **options):
    """Run until each stop in turn, going on from the checkpoint; then to the end."""
    source, target, _ = blobs()
    run = config(path, every, evaluate_every=evaluate_every)
    for stop in stops:
        going = trainer(run=run, callbacks=(StopAt(*stop),), backbone=batch_norm(), **options)
        if path.exists():
            going.resume(path)
        with pytest.raises(InterruptedRunError):
            going.fit(source, target)
    return trainer(run=run, backbone=batch_norm(), **options).resume(path).fit(source, target)


@functools.cache
def uninterrupted(evaluate_every=None, **options):
    source, target, _ = blobs()
    run = Execution(n_threads=1, log_every=1, evaluate_every=evaluate_every)
    return trainer(run=run, backbone=batch_norm(), **options).fit(source, target)


STOPS = {
    "in warm-up": ("step", "warmup", 3),
    "last update of warm-up": ("step", "warmup", 4),
    "first update after the boundary": ("step", "adapt", 0),
    "just after a refresh": ("step", "adapt", 4),
    "between refreshes": ("step", "adapt", 6),
    "last update": ("step", "adapt", 8),
    "while evaluating": ("evaluation", "adapt", 8),
    "while evaluating at the end": ("evaluation", "adapt", 9),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
@pytest.mark.parametrize("every", [1, 2, 3])
def test_resume_equals_an_uninterrupted_run_bit_for_bit(tmp_path, stop, every):
    options = {"warmup_steps": 5, "steps": 9, "refresh_every": 4}
    resumed = interrupted_then_resumed(tmp_path / "c.pt", [stop], every, **options)
    assert_same_run(resumed, uninterrupted(**options))


@pytest.mark.parametrize(
    "stop", [s for k, s in STOPS.items() if k not in ("in warm-up", "last update of warm-up")]
)
def test_checkpoints_at_evaluations_alone_are_enough(tmp_path, stop):
    options = {"warmup_steps": 5, "steps": 9, "refresh_every": 4, "evaluate_every": 3}
    resumed = interrupted_then_resumed(tmp_path / "c.pt", [stop], **options)
    assert_same_run(resumed, uninterrupted(**options))


@pytest.mark.parametrize("name", ["source-only", "dann", "e-dann", "ba3us-closed", "ba3us+cdan"])
def test_every_method_resumes(tmp_path, name):
    resumed = interrupted_then_resumed(tmp_path / "c.pt", [("step", "adapt", 5)], 2, name=name)
    assert_same_run(resumed, uninterrupted(name=name))


def test_a_run_may_be_interrupted_again_and_again(tmp_path):
    options = {"warmup_steps": 5, "steps": 9, "refresh_every": 4}
    stops = [stop for name, stop in STOPS.items() if name != "while evaluating"]  # that one is past by then
    resumed = interrupted_then_resumed(tmp_path / "c.pt", stops, 1, **options)
    assert_same_run(resumed, uninterrupted(**options))


def test_a_finished_run_resumes_to_the_same_result(tmp_path):
    source, target, _ = blobs()
    run = config(tmp_path / "c.pt")
    first = trainer(run=run).fit(source, target)
    again = trainer(run=run).resume(tmp_path / "c.pt").fit(source, target)
    assert_same_run(first, again)


def test_writing_checkpoints_changes_nothing(tmp_path):
    source, target, _ = blobs()
    assert_same_run(
        trainer(run=config(tmp_path / "deep" / "er" / "c.pt", 1)).fit(source, target),
        trainer().fit(source, target),
    )
    assert [p.name for p in (tmp_path / "deep" / "er").iterdir()] == ["c.pt"]


def test_the_comparison_would_notice_a_difference(tmp_path):
    """The control: a run that goes on with other random numbers is not the same."""
    path = tmp_path / "c.pt"
    source, target, _ = blobs()
    with pytest.raises(InterruptedRunError):
        trainer(run=config(path, 1), callbacks=(StopAt("step", "adapt", 5),)).fit(source, target)
    state = checkpoints.load(path)
    state["random"]["cpu"] = torch.Generator().manual_seed(1).get_state()
    checkpoints.save(path, state)
    other = trainer(run=config(path)).resume(path).fit(source, target)
    with pytest.raises(AssertionError):
        assert_same_run(other, trainer().fit(source, target))


# --- files ---


def saved(path):
    source, target, _ = blobs()
    trainer(run=config(path)).fit(source, target)
    return path.read_bytes()


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch, error):
    path = tmp_path / "c.pt"
    before = saved(path)

    def half(state, file):
        file.write(before[: len(before) // 2])
        raise error

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises((type(error), UserError)):  # a disk's error is a sentence
        checkpoints.save(path, {"position": [0, 0]})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _die_while_writing(path):
    def half(state, file):
        file.write(b"half")
        os._exit(9)

    torch.save = half
    checkpoints.save(path, {"position": [0, 0]})


def test_a_process_killed_while_writing_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "c.pt"
    before = saved(path)
    process = multiprocessing.get_context("fork").Process(target=_die_while_writing, args=(path,))
    process.start()
    process.join(30)
    assert process.exitcode == 9
    assert path.read_bytes() == before
    assert checkpoints.load(path)["position"] == [0, 8]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_checkpoint_is_a_sentence(tmp_path, share):
    path = tmp_path / "c.pt"
    whole = saved(path)
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=rf"^The checkpoint {path} can't be read \(.*\): it is damaged"):
        trainer().resume(path)


def test_a_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "c.pt"
    whole = saved(path)
    intact, noticed = pickle.dumps(listed(checkpoints.load(path))), 0
    positions = range(0, len(whole), len(whole) // 60)
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            assert pickle.dumps(listed(checkpoints.load(path))) == intact  # padding between the records
        except UserError:
            noticed += 1
    assert noticed > len(positions) / 3


def listed(value):
    """Tensors inside dicts and lists as lists."""
    if isinstance(value, dict):
        return {k: listed(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [listed(v) for v in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def test_a_missing_checkpoint_is_a_sentence(tmp_path):
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(UserError, match=rf"^There is no checkpoint at {path}: check the path"):
            trainer().resume(path)


@pytest.mark.parametrize("content", [[1, 2], {"module": {}}, {"weights": torch.ones(2)}, torch.ones(3)])
def test_another_programs_file_is_a_sentence(tmp_path, content):
    path = tmp_path / "c.pt"
    torch.save(content, path)
    with pytest.raises(UserError, match="is not a checkpoint of a run"):
        trainer().resume(path)


@pytest.mark.parametrize(("program", "name"), [(checkpoints, "ba3us"), (torch, "torch")])
def test_a_checkpoint_of_another_version_is_a_sentence(tmp_path, monkeypatch, program, name):
    path = tmp_path / "c.pt"
    with monkeypatch.context() as then:
        then.setattr(program, "__version__", "0.0.1")
        saved(path)
    with pytest.raises(UserError, match=rf"was written by .*{name} 0\.0\.1.*, but this is ba3us .* torch "):
        trainer().resume(path)


def test_a_checkpoint_that_lacks_a_part_is_a_sentence(tmp_path):
    path = tmp_path / "c.pt"
    checkpoints.save(path, {"position": [0, 0]})
    with pytest.raises(UserError, match="belongs to another method"):
        trainer().resume(path)


def test_a_record_marked_as_a_folder_is_noticed(tmp_path):
    """Torch would leave its tensor to whatever the memory held."""
    path = tmp_path / "c.pt"
    saved(path)
    with zipfile.ZipFile(path) as file:
        start = file.start_dir
    damaged = bytearray(path.read_bytes())
    damaged[start + 38] ^= 0x10  # the attributes in the first entry of the directory
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="can't be read"):
        trainer().resume(path)


class Payload:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_loading_runs_no_code(tmp_path):
    path, trace = tmp_path / "c.pt", tmp_path / "trace"
    torch.save({"position": Payload(trace)}, path)
    with pytest.raises(UserError, match="can't be read"):
        trainer().resume(path)
    assert not trace.exists()


@pytest.mark.parametrize("options", [{"name": "dann"}, {"name": "ba3us", "bottleneck": 4}])
def test_a_checkpoint_of_another_method_or_network_is_a_sentence(tmp_path, options):
    path = tmp_path / "c.pt"
    saved(path)
    with pytest.raises(UserError, match="belongs to another method, network or number of classes"):
        trainer(**options).resume(path)
