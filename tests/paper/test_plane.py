"""Both domains in the plane."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from ba3us.assess.projection import tsne
from ba3us.data import Target
from ba3us.errors import UserError
from ba3us.paper import figures


class Seeing:
    """A model whose features are what it is shown, and that counts the rows."""

    rows = 0

    def outputs(self, domain):
        x = domain.batch(np.arange(len(domain)))
        self.rows += len(x)
        yield torch.as_tensor(x), torch.zeros(len(x), 2)


def test_at_most_its_share_of_each_domain_is_seen_and_it_repeats(monkeypatch):
    monkeypatch.setattr(figures, "MAX_POINTS", 40)
    x = np.random.default_rng(0).normal(size=(60, 80)).astype(np.float32)
    x[:30] += 8
    domains, model = (Target(x), Target(x[:10] + 0.1)), Seeing()
    found = figures.in_plane(model, *domains)
    assert model.rows == len(found) and found["domain"].value_counts().to_dict() == {"source": 20, "target": 10}
    assert found["row"].iloc[[0, 19, 20, 29]].tolist() == [0, 59, 0, 9]
    pd.testing.assert_frame_equal(found, figures.in_plane(model, *domains))


def test_tsne_keeps_clusters_apart_and_needs_four_samples():
    x = np.random.default_rng(0).normal(size=(40, 8))
    x[:20] += 20
    xy = tsne(x)
    centres = xy[:20].mean(0), xy[20:].mean(0)
    near = [np.linalg.norm(xy - c, axis=1) for c in centres]
    assert ((near[0] < near[1]) == (np.arange(40) < 20)).all()
    with pytest.raises(UserError, match="needs at least 4"):
        tsne(x[:3])
