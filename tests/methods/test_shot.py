"""SHOT: pseudo-labels, and a target stage that sees no source."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from ba3us import methods
from ba3us.methods.base import DomainOutputs, Outputs
from ba3us.methods.shot import pseudo_labels
from ba3us.training import Callback, Execution
from toys import CLASSES, WIDTH, assert_same_run, blobs, build, same_state, trainer


def clouds(sizes, seed=0):
    """Features around orthogonal directions and rather sure logits, `sizes[c]` rows of class c."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    g = torch.Generator().manual_seed(seed)
    features = 5 * F.one_hot(labels, WIDTH) + 0.1 * torch.randn(len(labels), WIDTH, generator=g)
    return features, 4.0 * F.one_hot(labels, CLASSES), labels


def test_only_classes_with_more_than_the_given_number_of_predictions_are_allowed():
    features, logits, labels = clouds([11, 10, 30])
    found = pseudo_labels(features, logits, smallest_class=10)
    assert set(found.tolist()) == {0, 2}  # eleven are enough, ten are not
    assert torch.equal(found[labels != 1], labels[labels != 1])
    assert torch.equal(pseudo_labels(features, logits, smallest_class=9), labels)


def test_a_target_too_small_for_the_rule_uses_every_predicted_class():
    features, logits, labels = clouds([3, 4])
    assert torch.equal(pseudo_labels(features, logits, smallest_class=10), labels)


def test_the_smallest_class_that_counts_grows_with_the_target_up_to_the_published_ten():
    def renewed(sizes, **options):
        features, logits, _ = clouds(sizes)
        method = build("shot", **options)[1]
        method.refresh(DomainOutputs(features, logits, torch.arange(len(logits))))
        return set(method.labels.tolist())

    assert renewed([60, 90, 8]) == {0, 1, 2}  # more than 1 of 158 rows
    assert renewed([60, 90, 1]) == {0, 1}
    assert renewed([900, 600, 11]) == {0, 1, 2}
    assert renewed([900, 600, 10]) == {0, 1}  # never more than ten are asked for
    assert renewed([60, 90, 8], smallest_class=10) == {0, 1}
    assert methods.get("shot").options("office-home", "Ar->Cl").smallest_class == 10


def test_centres_correct_a_wrong_prediction():
    features, logits, labels = clouds([12, 12])
    logits[0] = 4.0 * F.one_hot(torch.tensor(1), CLASSES)  # says 1, lies among 0
    assert torch.equal(pseudo_labels(features, logits, smallest_class=10), labels)


class TrainingMonitor(Callback):
    """Keeps the classifier as adapting found it, and whether it was frozen at every update."""

    def __init__(self):
        self.classifier, self.frozen = None, []

    def on_gradients(self, trainer, step):
        network = trainer.module.network
        if step.phase == "adapt":
            if self.classifier is None:
                self.classifier = {k: v.clone() for k, v in network.classifier.state_dict().items()}
            self.frozen.append(not any(p.requires_grad for p in network.classifier.parameters()))


def test_the_classifier_is_frozen_and_no_source_row_is_drawn_while_adapting():
    source, target, _ = blobs()
    watch = TrainingMonitor()
    fitted = trainer("shot", callbacks=(watch,), source_steps=4, smallest_class=2)
    result = fitted.fit(source, target)
    assert watch.frozen == [True] * 4
    result.use("last")
    assert same_state(watch.classifier, fitted.module.network.classifier.state_dict())
    assert fitted.streams.positions()[0] == 4 * 6  # the source stage's rows only
    history = result.history.set_index("phase")
    assert history.loc["warmup", "classification"].notna().all()
    assert history.loc["adapt", "classification"].isna().all()


def test_the_source_stage_smooths_labels():
    method = build("shot", smoothing=0.2)[1]
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(5, CLASSES, generator=g), torch.arange(5) % CLASSES
    rows = DomainOutputs(torch.zeros(5, 5), logits, torch.arange(5), labels)
    loss = method.warmup_losses(Outputs(rows, rows, rows))["classification"]
    targets = 0.8 * F.one_hot(labels, CLASSES) + 0.2 / CLASSES
    torch.testing.assert_close(loss, -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean())


def test_the_classifiers_weights_are_split_into_length_and_direction():
    network, _ = build("shot")
    weight = network.classifier.weight
    length, direction = (p for n, p in network.classifier.named_parameters() if n != "bias")
    torch.testing.assert_close(weight, length * direction / direction.norm(dim=1, keepdim=True))


def test_pseudo_labels_survive_a_resume(tmp_path):
    source, target, _ = blobs()
    options = {"source_steps": 2, "refresh_every": 4}
    whole = trainer("shot", run=Execution(n_threads=1, log_every=1), **options).fit(source, target)

    class Stop(Callback):
        def on_step(self, trainer, step):
            if step.phase == "adapt" and step.number == 2:
                raise KeyboardInterrupt

    path = tmp_path / "state.pt"
    run = Execution(n_threads=1, log_every=1, checkpoint=path, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        trainer("shot", run=run, callbacks=(Stop(),), **options).fit(source, target)
    resumed = trainer("shot", run=Execution(n_threads=1, log_every=1), **options).resume(path)
    assert len(resumed.method.labels) == len(target)
    assert_same_run(resumed.fit(source, target), whole)


def test_published_epochs():
    config = methods.get("shot").options(protocol="office-home", task="Ar->Cl")  # 2427 and 1675 images
    assert config.source_steps == 50 * 35 and config.steps - config.source_steps == 15 * 27
    assert config.interval == 27


def test_each_stages_rate_decays_over_its_own_length():
    """As published: (1 + 10 p)^(-3/4) by the progress of the source stage, then by that of the target stage."""
    source, target, _ = blobs()
    fitted = trainer("shot", steps=12, source_steps=8, decay_gamma=10.0, decay_steps=4, learning_rate=0.1)
    rates = fitted.fit(source, target).history.set_index("phase")["lr"]
    assert rates["warmup"].tolist() == pytest.approx([0.1 * (1 + 10 * i / 8) ** -0.75 for i in range(8)])
    assert rates["adapt"].tolist() == pytest.approx([0.1 * (1 + 10 * i / 4) ** -0.75 for i in range(4)])
