"""Numbers that go wrong: update and term are named, the state is kept, another try is slower and repeats."""

from __future__ import annotations

import pytest
import torch

from ba3us.errors import UserError
from ba3us.training import Callback, Execution, checkpoints
from ba3us.training.monitoring import MAX_RETRIES, DivergedError
from toys import assert_same_run, blobs, trainer

SOURCE, TARGET, _ = blobs()


def spoilt(made, at: int, term: str, rate: float = 0.0):
    """A trainer whose `term` is no number from update `at` on, as long as the learning rate is above `rate`."""
    losses = made.method.losses

    def wrong(outputs, step):
        terms = losses(outputs, step)
        if step.number >= at and made.lr_factor > rate:
            terms[term] = terms[term] * float("nan")
        return terms

    made.method.losses = wrong
    return made


def execution(**more) -> Execution:
    return Execution(n_threads=1, log_every=5, **more)


def test_the_update_and_the_term_are_named_though_rows_are_rare():
    with pytest.raises(DivergedError) as found:
        spoilt(trainer(run=execution()), at=3, term="alignment").fit(SOURCE, TARGET)
    said = str(found.value)
    assert said.startswith("The term 'alignment' of the loss became nan at step 3 of phase 'adapt'")
    assert "lower learning_rate" in said and "`on_nan='retry'`" in said and "state" not in said


def test_the_state_is_saved_for_a_look_and_the_good_one_stays(tmp_path):
    path = tmp_path / "state.ckpt"
    with pytest.raises(UserError, match=r"\(the state then is in .*state\.ckpt\.diverged\)"):
        spoilt(trainer(run=execution(checkpoint=path)), at=5, term="entropy").fit(SOURCE, TARGET)
    good, wrong = checkpoints.load(path), checkpoints.load(tmp_path / "state.ckpt.diverged")
    assert (good["position"], wrong["position"]) == ([0, 4], [0, 5])
    finite = [all(torch.isfinite(v).all() for v in s["module"].values()) for s in (good, wrong)]
    assert finite == [True, False]


def test_another_try_goes_back_and_is_slower():
    made = spoilt(trainer(run=execution(on_nan="retry")), at=5, term="alignment", rate=0.3)
    result = made.fit(SOURCE, TARGET)
    assert made.lr_factor == 0.25 and len(made.retries) == 2
    assert "step 5 of phase 'adapt': went on from step 4" in made.retries[0]
    assert made.retries[1].endswith("at 0.25 times the learning rate.")
    assert list(result.history["step"]) == [0, 5]  # nothing of the tries that were given up


def test_where_nothing_helps_it_ends():
    made = spoilt(trainer(run=execution(on_nan="retry")), at=0, term="alignment")
    with pytest.raises(DivergedError, match="at step 0"):
        made.fit(SOURCE, TARGET)
    assert len(made.retries) == MAX_RETRIES


class Stop(Callback):
    """Breaks off after an update, once."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_step(self, trainer, step):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [2, 5, 7, 8])
def test_tries_that_are_interrupted_come_to_the_same_end(tmp_path, after):
    def made(callbacks=(), **more):
        return spoilt(
            trainer(run=execution(on_nan="retry", **more), callbacks=callbacks), 5, "alignment", rate=0.3
        )

    whole = made().fit(SOURCE, TARGET)
    path = tmp_path / "state.ckpt"
    with pytest.raises(KeyboardInterrupt):
        made((Stop(after),), checkpoint=path).fit(SOURCE, TARGET)
    again = made(checkpoint=path)
    assert_same_run((again.resume(path) if path.exists() else again).fit(SOURCE, TARGET), whole)
    assert again.lr_factor == 0.25


def test_a_run_that_stopped_goes_on_with_tries(tmp_path):
    whole = spoilt(trainer(run=execution(on_nan="retry")), 5, "alignment", rate=0.3).fit(SOURCE, TARGET)
    path = tmp_path / "state.ckpt"
    with pytest.raises(DivergedError):
        spoilt(trainer(run=execution(checkpoint=path)), 5, "alignment", rate=0.3).fit(SOURCE, TARGET)
    again = spoilt(trainer(run=execution(checkpoint=path, on_nan="retry")), 5, "alignment", rate=0.3)
    assert_same_run(again.resume(path).fit(SOURCE, TARGET), whole)


def test_only_known_answers():
    with pytest.raises(UserError, match="on_nan is 'ignore': choose one of stop, retry"):
        Execution(on_nan="ignore")
