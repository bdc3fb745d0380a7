"""Options of the non-adversarial and reconstructed systems: every bad one is a sentence."""

from __future__ import annotations

import pytest

from ba3us import methods
from ba3us.errors import UserError

BAD = [
    ("hafn", "norm_weight", -0.1, "0 or more"),
    ("hafn", "source_steps", 1000, "from 0 to 999"),
    ("safn+ent", "entropy_weight", -1, "0 or more"),
    ("safn", "dropout", 1.0, r"in \[0, 1\)"),
    ("mcc", "temperature", 0, "above 0"),
    ("mcc", "confusion_weight", -1, "0 or more"),
    ("drcn", "correct", "both", "'source' or 'target'"),
    ("drcn", "alignment_weight", -1, "0 or more"),
    ("drcn", "class_wise", "yes", "true or false"),
    ("twins", "agreement_weight", -1, "0 or more"),
    ("mwpda", "outlier_scale", -0.1, "0 or more"),
    ("shot", "smoothing", 1.0, r"in \[0, 1\)"),
    ("shot", "smallest_class", -1, "0 or more"),
    ("shot", "batch_size", 1, "from 2 .* batch norm"),
    ("sspda", "permutations", 0, "from 1 to 1000"),
    ("sspda", "grey", 1.5, r"in \[0, 1\]"),
    ("mcs", "ridge", 0, "above 0"),
    ("mcs", "pull", -1, "0 or more"),
    ("mcs", "rounds", 0, "at least 1"),
    ("jumbot", "regularisation", 0, "above 0"),
    ("jumbot", "marginal_penalty", 0, "above 0"),
    ("m-pot", "mass", 1.1, r"in \(0, 1\]"),
    ("m-pot", "label_weight", -1, "0 or more"),
    ("hafn", "radius", -1, "0 or more"),
    ("safn", "growth", -1, "0 or more"),
    ("shot", "keep_classifier", True, "left at False, because this method does not use it"),
    ("shot", "bottleneck_norm", True, "left at False"),
    ("hafn", "keep_classifier", True, "left at False"),
    ("safn+ent", "keep_classifier", True, "left at False"),
    ("mcs", "warmup_steps", 5, "left at 0"),
]


@pytest.mark.parametrize(("name", "option", "value", "must_be"), BAD)
def test_bad_options(name, option, value, must_be):
    with pytest.raises(UserError, match=rf"^Option '{option}' is .*: it must be .*{must_be}"):
        methods.get(name).options(**{option: value})


@pytest.mark.parametrize("name", ["hafn", "safn", "mcc", "drcn", "twins", "mwpda", "shot", "mcs", "jumbot"])
def test_uncertainty_suppression_can_be_added_to_all(name):
    assert methods.get(name).options(beta=1.0).beta == 1.0
