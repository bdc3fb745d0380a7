"""The engine: spec → open → build → train → run. Every face fills in a spec and shows a run."""

from ba3us.engine.commands import adapt, predict, train
from ba3us.engine.run import Run
from ba3us.engine.samples import Domains
from ba3us.engine.spec import Spec

__all__ = ["Domains", "Run", "Spec", "adapt", "predict", "train"]
