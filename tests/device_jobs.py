"""What two processes do together and one does alone, for the tests to compare; run with :func:`together`."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.nn import Network
from ba3us.training import RunConfig, Trainer
from ba3us.training.predict import predict_domain
from ba3us.training.team import Team
from toys import CLASSES, WIDTH, blobs, options_for

BATCH = 7  # odd, so that shares differ
SMALL: dict[str, Any] = {"steps": 10, "batch_size": BATCH, "refresh_every": 4, "bottleneck": 5}
# their bottleneck has batch norm (and dropout), which is left out with it
WITHOUT_BOTTLENECK = ("shot", "hafn", "hafn+ent", "safn", "safn+ent")
PIXELS = ("sspda", "cdan+transnorm")
FEATURES = [entry.name for entry in methods.entries() if entry.name not in PIXELS]
LENGTHS = (1, 2, 3, 7, 18)


def hidden_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def doubled(name: str, backbone: Callable[[], nn.Module] = hidden_layer, **options: Any):
    """A network without batch norm and a method, in float64."""
    entry = methods.get(name)
    if name in WITHOUT_BOTTLENECK:
        options = {"bottleneck": None} | options
    config = entry.config(**options_for(name, **SMALL | options))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(backbone(), WIDTH, CLASSES, entry.method.head(config))
        return network.double(), entry.create(network, config).double()


def trained(
    name: str, run: RunConfig | None = None, backbone: Callable[[], nn.Module] = hidden_layer, **options: Any
) -> dict[str, Any]:
    source, target, _ = blobs(n_target=17)
    network, method = doubled(name, backbone, **options)
    result = Trainer(network, method, run or RunConfig(threads=1, log_every=1)).fit(source, target)
    return {
        "last": result.states["last"],
        "selected": result.states["selected"],
        "losses": torch.tensor(result.history["loss"].to_numpy()),
        "borrowed": result.history["borrowed"].tolist(),
        "predictions": [torch.from_numpy(e.predictions) for e in result.evaluations],
        "scores": torch.tensor([e.score for e in result.evaluations]),
    }


def predicted(length: int, batch_size: int) -> dict[str, torch.Tensor]:
    """All rows of a domain, with two more views."""
    x = np.random.default_rng(length).standard_normal((length, WIDTH))
    network, method = doubled("ba3us")
    trainer = Trainer(network, method)
    domain = Target(x, views=[x + 1, x - 1])
    outputs = predict_domain(trainer.module, domain, batch_size, views=True, team=Team.current())
    named = {"features": outputs.features, "logits": outputs.logits, "rows": outputs.rows}
    return named | {"views": outputs.extra["views"]}


def refused(**options: Any) -> str:
    """The sentence about a run that can't be shared."""
    source, target, _ = blobs()
    network, method = doubled("dann", **options)
    try:
        if options.get("batch_size", 0) > 4:  # the processes are given different data
            source = Source(
                np.zeros((10 + Team.current().rank, WIDTH)), np.arange(10 + Team.current().rank) % 4
            )
        Trainer(network, method, RunConfig(threads=1)).fit(source, target)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was said"


JOBS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: trained(name) for name in FEATURES},
    "with warm-up": lambda: trained("ba3us", warmup_steps=4),
    "float32": lambda: trained("ba3us", discriminator_dropout=0.0),
    **{f"{n} rows": lambda n=n: [predicted(n, size) for size in (1, 4, 100)] for n in LENGTHS},
    "small batch": lambda: refused(batch_size=3),
    "other data": lambda: refused(batch_size=8),
}


def _work(rank: int, size: int, port: int, jobs: list[str], out: Path) -> None:
    from ba3us.training.devices import launched

    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with launched("cpu", size):
        for name in jobs:
            try:
                results[name] = JOBS[name]()
            except Exception:
                results[name] = traceback.format_exc()
                break
    torch.save(results, out / f"{rank}.pt")


def together(jobs: list[str], out: Path, size: int = 2) -> list[dict[str, Any]]:
    """What each of `size` processes says of `jobs`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(r, size, port, jobs, out)) for r in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        if worker.is_alive():
            worker.kill()
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in range(size)]
