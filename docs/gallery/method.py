"""Writing a method: the domains' mean features are drawn together; then it is used like any other."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ba3us import PartialAdapter
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import register
from ba3us.methods.shared import SourceRiskOptions, source_risk


@dataclass(frozen=True, kw_only=True)
class MeanPullOptions(SourceRiskOptions):
    """Settings of the method: `pull` weighs the distance between the means."""

    pull: NonNegative = 0.02


@register(
    "mean-pull",
    MethodInfo("Mean pull", "an example of the gallery", setting="closed-set", losses="reconstruction"),
)
class MeanPull(Method):
    """min CE + pull·‖mean f_s - mean f_t‖²."""

    Options = MeanPullOptions
    options: MeanPullOptions

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy on the source, and the distance between the means."""
        gap = outputs.source.features.mean(0) - outputs.target.features.mean(0)
        return source_risk(outputs.source, self.options) | {"means": self.options.pull * gap.square().sum()}


noise = np.random.default_rng(0)
centres = 4 * noise.standard_normal((3, 8))
y, truth = np.arange(90) % 3, np.arange(60) % 3
X = centres[y] + noise.standard_normal((90, 8))
Xt = centres[truth] + noise.standard_normal((60, 8)) + 3.0  # the same classes, moved

for method in ("source-only", "mean-pull"):
    model = PartialAdapter(method, steps=100, random_state=0).fit(X, y, Xt)
    print(f"{method}: {(model.predict(Xt) == truth).mean():.1%}")
print(model.history_[["step", "classification", "means"]].dropna().tail(3).to_string(index=False))
