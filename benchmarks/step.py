"""Time of one BA³US step on 2048-d features: our loop, the released form, bare products, and skada's DANN.

    python benchmarks/step.py [--steps 2000] [--rounds 20] [--parts] [--out step.md]

The machine may be shared, so all rows take turns in many short rounds, each row is compared with its partner
of the same round, and the median of these ratios counts (with its quartiles). A round is timed from its first
update to its last: nobody's set-up counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from released import PlainStep
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ba3us import methods
from ba3us.data import Source, Streams, Target
from ba3us.nn import Discriminator, Network
from ba3us.training import Callback, Execution, Trainer, loop

DIM, CLASSES, BATCH, BORROWED, HIDDEN = 2048, 31, 36, 9, 1024


Row = Callable[[int], float]  # makes about so many updates, returns milliseconds per update


class Constant(Streams):
    """Streams that always lend nine samples, so that every row does the same work."""

    def draw(self, source: int, target: int, borrowed: int):
        return super().draw(source, target, BORROWED if target else borrowed)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, 2817)
    centres = generator.normal(size=(CLASSES, DIM))
    source = (centres[labels] + generator.normal(size=(2817, DIM))).astype(np.float32)
    target = (centres[generator.integers(0, 10, 958)] + generator.normal(size=(958, DIM))).astype(np.float32)
    return source, labels, target


def build(name: str = "ba3us") -> tuple[Network, nn.Module]:
    entry = methods.get(name)
    config = entry.options(steps=10**9, refresh_every=10**9, batch_size=BATCH)
    network = Network(nn.Identity(), DIM, CLASSES, entry.method.head(config))
    return network, entry.create(network, config)


class Clock(Callback):
    """Reads the time after every update."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step(self, trainer, step) -> None:
        self.times.append(time.perf_counter())

    def milliseconds(self) -> float:
        """Per update, from the first to the last."""
        return 1000 * (self.times[-1] - self.times[0]) / (len(self.times) - 1)


def ours(name: str = "ba3us") -> Row:
    """(a) The real loop; a round is a fit."""
    source, labels, target = data()
    domains = Source(source, labels), Target(target)

    def run(steps: int) -> float:
        network, method = build(name)
        recipe, clock = method.recipe(), Clock()
        phase = dataclasses.replace(recipe.phases[-1], steps=steps, horizon=10**6)
        recipe = dataclasses.replace(recipe, phases=(phase,))
        streams = Constant(len(source), len(target), 0) if name == "ba3us" else None
        Trainer(network, method, Execution(), recipe=recipe, streams=streams, callbacks=[clock]).fit(*domains)
        return clock.milliseconds()

    return run


def plainly_timed(make: Callable[[int], None]) -> Row:
    """A row that needs no set-up in each round."""

    def run(steps: int) -> float:
        start = time.perf_counter()
        make(steps)
        return 1000 * (time.perf_counter() - start) / steps

    return run


def released_form(workers: int) -> Row:
    """(b) The same step in the form of the released program.

    Three shuffled DataLoaders that collate item by item, three forward passes, torch's dropout, plain SGD.
    """
    source, labels, target = data()
    labelled = TensorDataset(torch.from_numpy(source), torch.from_numpy(labels))
    unlabelled = TensorDataset(torch.from_numpy(target))

    def endless(dataset: TensorDataset, batch: int):
        loader = DataLoader(dataset, batch, shuffle=True, drop_last=True, num_workers=workers)
        while True:
            yield from loader

    network, method = build()
    step = PlainStep(network, method, [{"params": [*network.parameters(), *method.parameters()]}])
    streams = endless(labelled, BATCH), endless(unlabelled, BATCH), endless(labelled, BORROWED)

    def make(steps: int) -> None:
        for i in range(steps):
            (xs, ys), (xt,), (xm, ym) = (next(s) for s in streams)
            step(i, xs, ys, xt, xm, ym)

    return plainly_timed(make)


def bare_products() -> Row:
    """(c) Only the matrix products of a step, forward and backward, and one fused optimiser step."""
    network, method = build()
    layers = [
        network.bottleneck,
        network.classifier,
        *(m for m in method.modules() if isinstance(m, nn.Linear)),
    ]
    rows = 2 * BATCH + BORROWED
    weights = [layer.weight.detach() for layer in layers]
    inputs = [torch.randn(rows, w.shape[1]) for w in weights]
    grads = [torch.randn(rows, w.shape[0]) for w in weights]
    parameters = [*network.parameters(), *method.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-9, momentum=0.9, weight_decay=1e-3, nesterov=True, fused=True)
    for p in parameters:
        p.grad = torch.zeros_like(p)

    def make(steps: int) -> None:
        for _ in range(steps):
            for i, (w, x, g) in enumerate(zip(weights, inputs, grads)):
                x @ w.T
                g.T @ x
                if i:  # nothing flows back into the features themselves
                    g @ w
            optimizer.step()

    return plainly_timed(make)


def skada_dann() -> Row | None:
    """(d) skada's DANN on the same batch, networks and optimiser (None where skada or skorch is missing)."""
    try:
        from skada.deep import DANN
    except ImportError:
        return None
    source, labels, target = data()
    network, method = build("dann")
    clock = Clock()

    class ClockedSGD(torch.optim.SGD):
        def step(self, closure=None):
            loss = super().step(closure)
            clock.on_step(None, None)
            return loss

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feature_layer, self.classifier = network.bottleneck, network.classifier

        def forward(self, x, sample_weight=None):
            return self.classifier(self.feature_layer(x))

    class Probability(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = method.discriminator

        def forward(self, x):
            return torch.sigmoid(self.logits(x))

    x = np.concatenate([source, target])
    y = np.concatenate([labels, np.full(len(target), -1)]).astype(np.int64)
    domain = np.concatenate([np.full(len(source), 1), np.full(len(target), -2)])

    def run(steps: int) -> float:
        clock.times.clear()
        model = DANN(
            Net(),
            layer_name="feature_layer",
            domain_classifier=Probability(),
            batch_size=BATCH,
            max_epochs=max(1, steps * BATCH // len(source)),
            train_split=None,
            verbose=0,
            optimizer=ClockedSGD,
            optimizer__momentum=0.9,
            optimizer__nesterov=True,
            optimizer__weight_decay=1e-3,
            lr=0.01,
        )
        model.fit(x, y, sample_domain=domain)
        return clock.milliseconds()

    return run


def timed(rows: dict[str, Row], steps: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds per update of each row in every round."""
    for run in rows.values():
        run(10)
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, run in rows.items():
            times[name].append(run(max(2, steps // rounds)))
            if "4 loader workers" in name:
                time.sleep(0.2)  # they may still be reading ahead
    return times


@contextmanager
def watched(owner: Any, name: str, into: list[float]) -> Iterator[None]:
    """Write down how long each call of a method takes, in milliseconds."""
    inner = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            into.append(1000 * (time.perf_counter() - start))

    with mock.patch.object(owner, name, outer):
        yield


def parts(steps: int) -> str:
    """Where the time of (a) goes."""
    run = ours()
    run(10)
    places = {
        "draw": (loop.Trainer, "_draw"),
        "fetch": (loop.Trainer, "_inputs"),
        "forward": (loop.TrainingStep, "forward"),
        "network": (Network, "forward"),
        "discriminator": (Discriminator, "forward"),
        "backward": (torch.Tensor, "backward"),
        "SGD": (torch.optim.SGD, "step"),
        "update": (loop.Trainer, "training_step"),
    }
    times: dict[str, list[float]] = {name: [] for name in places}
    with ExitStack() as watching:
        for name, (owner, attribute) in places.items():
            watching.enter_context(watched(owner, attribute, times[name]))
        run(steps)
    ms = {name: statistics.median(values) for name, values in times.items()}
    rest = ms["update"] - sum(ms[name] for name in ("draw", "fetch", "forward", "backward", "SGD"))
    rows = {
        "drawing and fetching 81 rows of 8 kB": ms["draw"] + ms["fetch"],
        "network, forward": ms["network"],
        "discriminator, forward": ms["discriminator"],
        "losses, forward": ms["forward"] - ms["network"] - ms["discriminator"],
        "backward": ms["backward"],
        "fused SGD": ms["SGD"],
        "the loop's own": rest,
        "one update": ms["update"],
    }
    return "\n".join(["| part of (a) | ms |", "|---|---:|", *(f"| {k} | {v:.2f} |" for k, v in rows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="updates of each row, over all rounds")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-workers", action="store_true", help="leave the row with 4 loader workers out")
    parser.add_argument("--parts", action="store_true", help="also say where the time of (a) goes")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")
    rows: dict[str, Row] = {
        "(a) ba3us, our loop": ours(),
        "(b) released form, 4 loader workers": released_form(4),
        "(b) released form, no loader workers": released_form(0),
        "(c) bare products + fused SGD": bare_products(),
        "(d) DANN, our loop": ours("dann"),
    }
    if args.no_workers:
        del rows["(b) released form, 4 loader workers"]
    skada = skada_dann()
    if skada is not None:
        rows["(d) DANN, skada"] = skada
    times = timed(rows, args.steps, args.rounds)
    lines = ["| row | ms per update | relative | quartiles |", "|---|---:|---|---|"]
    for name, values in times.items():
        partner = "(d) DANN, our loop" if "DANN" in name else "(a) ba3us, our loop"
        if name == partner:
            partner = "(c) bare products + fused SGD"
        ratios = [one / other for one, other in zip(values, times[partner])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        relative = f"{middle:.2f}× {partner.partition(',')[0].split(' +')[0]}"
        lines.append(f"| {name} | {statistics.median(values):.2f} | {relative} | {low:.2f} – {high:.2f} |")
    text = "\n".join(lines)
    if args.parts:
        text += "\n\n" + parts(args.steps // 2)
    print(text)
    if args.out:
        n_threads = torch.get_num_threads()
        command = f"`python benchmarks/step.py --steps {args.steps} --rounds {args.rounds}`"
        head = f"# Time of one step\n\n{command}; {n_threads} threads, torch {torch.__version__}.\n\n"
        args.out.write_text(head + text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
