"""One step of training as a module, so that devices can wrap it."""

from __future__ import annotations

import functools
import operator

from torch import Tensor, nn

from ba3us.methods.base import WARMUP, Inputs, Method, Step
from ba3us.nn import Network
from ba3us.training.team import Team


class TrainingStep(nn.Module):
    """Network and method as one module whose forward is a whole step: batches in, loss and terms out.

    In a `team` each process is given its share of the batches and returns what the joint batch gives.
    """

    def __init__(self, network: Network, method: Method) -> None:
        super().__init__()
        self.network, self.method = network, method
        self.team = Team()

    def forward(self, inputs: Inputs, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise, and the named terms that it is the sum of, detached."""
        with self.team.apart(step):
            outputs = self.method.outputs(self.network, inputs)
        outputs = self.team.joined(outputs)
        warm = step.phase == WARMUP
        terms = self.method.warmup_losses(outputs) if warm else self.method.losses(outputs, step)
        loss = functools.reduce(operator.add, terms.values())
        return loss, {name: term.detach() for name, term in terms.items()}
