"""Accuracy, worked out after training by whoever has the labels."""

from __future__ import annotations

import numpy as np
import pytest

from ba3us.assess.scoring import accuracies, selected_accuracy, summary
from ba3us.errors import UserError
from ba3us.training import Evaluation
from toys import blobs, trainer


class KeptRun:
    """As much of a result as scoring needs."""

    def __init__(self):
        shares = np.array([0.5, 0.5])

        def evaluation(phase, step, candidate, score, predictions):
            return Evaluation(phase, step, candidate, score, {}, np.array(predictions), shares)

        self.evaluations = [
            evaluation("warmup", 5, False, 0.1, [0, 1, 1, 0]),
            evaluation("adapt", 4, True, 0.9, [0, 1, 1, 1]),
            evaluation("adapt", 8, True, 0.2, [0, 0, 1, 1]),
            evaluation("adapt", 12, True, 0.5, [1, 0, 0, 1]),
        ]
        self.best_index = 2


LABELS = [0, 1, 1, 1]


def test_accuracy_of_every_evaluation():
    table = accuracies(KeptRun().evaluations, LABELS)
    assert table["accuracy"].tolist() == [0.75, 1.0, 0.75, 0.25]
    assert list(table.columns) == ["phase", "step", "score", "candidate", "accuracy"]


def accuracy(kept, labels):
    return {rule: score.accuracy for rule, score in summary(kept, labels).items()}


def test_summary_tells_last_selected_and_oracle_apart():
    assert selected_accuracy(KeptRun(), LABELS) == 0.75
    assert accuracy(KeptRun(), LABELS) == {"last": 0.25, "selected": 0.75, "oracle": 1.0}


def test_the_warm_up_is_no_oracle():
    kept = KeptRun()
    assert accuracy(kept, [0, 1, 1, 0])["oracle"] == 0.75  # the warm-up has 1.0


def test_where_nothing_adapts_the_last_evaluation_is_all_there_is():
    kept = KeptRun()
    kept.evaluations, kept.best_index = kept.evaluations[:1], 0
    assert accuracy(kept, LABELS) == {"last": 0.75, "selected": 0.75, "oracle": 0.75}


def test_absent_classes_are_told_from_lost_ones():
    for labels, absent, lost in ((LABELS, 0.0, 0), ([1, 1, 1, 1], 0.5, 0), ([0, 0, 2, 3], 0.5, 2)):
        score = summary(KeptRun(), labels)["selected"]
        assert (score.absent, score.lost) == (absent, lost)


def test_labels_must_be_as_many_as_predictions():
    with pytest.raises(UserError, match=r"4 predictions but labels of shape \(3,\)"):
        accuracies(KeptRun().evaluations, LABELS[:3])
    with pytest.raises(UserError, match=r"labels of shape \(4, 1\)"):
        accuracies(KeptRun().evaluations, [[y] for y in LABELS])


def test_of_a_real_run():
    source, target, labels = blobs()
    result = trainer().fit(source, target)
    predicted = result.predict(target).logits.argmax(1).numpy()
    assert selected_accuracy(result, labels) == pytest.approx((predicted == labels).mean())
