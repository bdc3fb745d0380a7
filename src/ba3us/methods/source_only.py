"""Source-only: cross-entropy on the source, the baseline for every adaptation."""

from __future__ import annotations

from torch import Tensor

from ba3us.methods.base import Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.registry import BUDGET, Published, register, with_budget

_PUBLISHED = with_budget()
_PUBLISHED["imagenet-caltech"] = Published(
    BUDGET["imagenet-caltech"],
    {"I->C": {"keep_classifier": True, "steps": 0}},
    note="ImageNet's own pretrained 1000-way classifier is not trained further",
)


@register(
    "source-only",
    MethodInfo(
        title="Source-only",
        reference="The paper's ResNet-50 and VGG-16 rows",
        setting="both",
        losses="textbook",
        note="The target is never trained on. Same number of steps as the method it stands beside.",
    ),
    _PUBLISHED,
)
class SourceOnly(Method):
    """min CE(G(F(x_s)), y_s)."""

    def recipe(self) -> Recipe:
        """As any other, but no target batch is ever drawn."""
        return super().recipe().in_every_phase(target=False)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """The warm-up's terms, throughout."""
        return self.warmup_losses(outputs)
