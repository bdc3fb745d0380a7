"""What several processes do together and one does alone, for the tests to compare."""

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
from ba3us.errors import UserError
from ba3us.nn import Network
from ba3us.training import Execution, Trainer
from ba3us.training.distributed import ProcessGroup, launched
from ba3us.training.evaluation import predict_domain
from toys import CLASSES, WIDTH, blobs, options_for

# an odd batch, so that shares differ
SMALL: dict[str, Any] = {"steps": 10, "batch_size": 7, "refresh_every": 4, "bottleneck": 5}
# one name for each class of methods that take features, and more of the paper's family
NAMES = {entry.method: entry.name for entry in methods.entries()}.values()
FEATURES = sorted({*NAMES, "ba3us", "ba3us+cdan"} - {"sspda", "cdan+transnorm"})
LENGTHS = (1, 2, 3, 7, 18)
RUN = Execution(n_threads=1, log_every=1)


def hidden_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 50), nn.Dropout(0.5), nn.Linear(50, WIDTH))


def built(name: str, backbone: Callable[[], nn.Module] = hidden_layer, **options: Any):
    """A network without batch norm and a method, in float64."""
    entry = methods.get(name)
    if entry.method.head(entry.options()).batch_norm:
        options = {"bottleneck": None} | options  # there the norm layer sits
    config = entry.options(**options_for(name, **SMALL | options))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(backbone(), WIDTH, CLASSES, entry.method.head(config))
        return network.double(), entry.create(network, config).double()


def trained(name: str, backbone: Callable[[], nn.Module] = hidden_layer, **options: Any) -> dict[str, Any]:
    """Everything that a run leaves behind."""
    source, target, _ = blobs(n_target=17)
    result = Trainer(*built(name, backbone, **options), RUN).fit(source, target)
    return {
        "states": result.states,
        "losses": torch.tensor(result.history["loss"].to_numpy()),
        "borrowed": torch.tensor(result.history["borrowed"].to_numpy()),
        "predictions": [torch.from_numpy(e.predictions) for e in result.evaluations],
        "scores": torch.tensor([e.score for e in result.evaluations]),
    }


def predicted(length: int, batch_size: int) -> dict[str, torch.Tensor]:
    """All rows of a domain, with two more views."""
    x = np.random.default_rng(length).standard_normal((length, WIDTH))
    module = Trainer(*built("ba3us")).module
    domain = Target(x, views=[x + 1, x - 1])
    outputs = predict_domain(module, domain, batch_size, views=True, process_group=ProcessGroup.current())
    named = {"features": outputs.features, "logits": outputs.logits, "rows": outputs.rows}
    return named | {"views": outputs.extra["views"]}


def refused(source: Source, **options: Any) -> str:
    """The sentence about a run that can't be shared."""
    try:
        Trainer(*built("dann", **options), RUN).fit(source, blobs()[1])
    except UserError as error:
        return str(error)
    return "nothing was said"


def other_data() -> str:
    rows = 10 + ProcessGroup.current().rank
    return refused(Source(np.zeros((rows, WIDTH)), np.arange(rows) % CLASSES))


JOBS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: trained(name) for name in FEATURES},
    "ba3us with borrowed rows": lambda: trained("ba3us", rho=-0.5),
    "ba3us with warm-up": lambda: trained("ba3us", warmup_steps=4),
    "batch norm": lambda: trained("ba3us", with_batch_norm),
    "dropout": lambda: trained("source-only", with_dropout),
    **{f"{n} rows": lambda n=n: [predicted(n, size) for size in (1, 4, 100)] for n in LENGTHS},
    "a small batch": lambda: refused(blobs()[0], batch_size=3),
    "other data": other_data,
}


def _work(rank: int, size: int, port: int, out: Path) -> None:
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    results: dict[str, Any] = {}
    with launched("cpu", size):
        for name, job in JOBS.items():
            try:
                results[name] = job()
            except Exception:
                results[name] = traceback.format_exc()
                break
    torch.save(results, out / f"{rank}.pt")


def together(out: Path, size: int = 2) -> list[dict[str, Any]]:
    """What each of `size` processes has of every job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(rank, size, port, out)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
        worker.kill()
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in range(size)]
