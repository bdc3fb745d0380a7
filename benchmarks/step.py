"""Time of one BA³US step on 2048-d features: our loop, the released form, bare products, and skada's DANN.

    python benchmarks/step.py [--steps 300] [--out docs/results/step.md]

All rows are timed in turns within one run (rounds are interleaved, the median round counts), because the
machine may be shared; only the ratios mean something.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from released import PlainStep
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ba3us import methods
from ba3us.data import Source, Streams, Target
from ba3us.nn import Network
from ba3us.training import RunConfig, Trainer

DIM, CLASSES, BATCH, BORROWED, HIDDEN = 2048, 31, 36, 9, 1024


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
    config = entry.config(steps=10**9, refresh_every=10**9, batch_size=BATCH)
    network = Network(nn.Identity(), DIM, CLASSES, entry.method.head(config))
    return network, entry.create(network, config)


def ours(name: str = "ba3us") -> Callable[[int], None]:
    """(a) The real loop; a round is a fit of that many updates."""
    source, labels, target = data()
    domains = Source(source, labels), Target(target)

    def run(steps: int) -> None:
        import dataclasses

        network, method = build(name)
        recipe = method.recipe()
        phase = dataclasses.replace(recipe.phases[-1], steps=steps, horizon=10**6)
        recipe = dataclasses.replace(recipe, phases=(phase,))
        streams = Constant(len(source), len(target), 0) if name == "ba3us" else None
        Trainer(network, method, RunConfig(), recipe=recipe, streams=streams).fit(*domains)

    return run


def released_form(workers: int) -> Callable[[int], None]:
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

    def run(steps: int) -> None:
        streams = endless(labelled, BATCH), endless(unlabelled, BATCH), endless(labelled, BORROWED)
        for i in range(steps):
            (xs, ys), (xt,), (xm, ym) = (next(s) for s in streams)
            step(i, xs, ys, xt, xm, ym)

    return run


def bare_products() -> Callable[[int], None]:
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

    def run(steps: int) -> None:
        for _ in range(steps):
            for i, (w, x, g) in enumerate(zip(weights, inputs, grads)):
                x @ w.T
                g.T @ x
                if i:  # nothing flows back into the features themselves
                    g @ w
            optimizer.step()

    return run


def skada_dann() -> Callable[[int], None] | None:
    """(d) skada's DANN on the same batch, networks and optimiser (None where skada or skorch is missing)."""
    try:
        from skada.deep import DANN
    except ImportError:
        return None
    source, labels, target = data()
    network, method = build("dann")
    counts = [0]

    class CountingSGD(torch.optim.SGD):
        def step(self, closure=None):
            counts[0] += 1
            return super().step(closure)

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

    def run(steps: int) -> None:
        counts[0] = 0
        model = DANN(
            Net(),
            layer_name="feature_layer",
            domain_classifier=Probability(),
            batch_size=BATCH,
            max_epochs=max(1, steps * BATCH // len(source)),
            train_split=None,
            verbose=0,
            optimizer=CountingSGD,
            optimizer__momentum=0.9,
            optimizer__nesterov=True,
            optimizer__weight_decay=1e-3,
            lr=0.01,
        )
        model.fit(x, y, sample_domain=domain)
        run.updates = counts[0]  # type: ignore[attr-defined]

    return run


def timed(rows: dict[str, Callable[[int], None]], steps: int, rounds: int) -> dict[str, float]:
    """Median milliseconds per update, rounds interleaved."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds + 1):
        for name, run in rows.items():
            count = max(10, steps // 2) if "4 loader workers" in name else steps
            start = time.perf_counter()
            run(count if turn else 10)
            elapsed = time.perf_counter() - start
            if turn:
                seconds[name].append(elapsed / getattr(run, "updates", count))
    return {name: 1000 * statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-workers", action="store_true", help="leave the row with 4 loader workers out")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: dict[str, Callable[[int], None]] = {
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
    a = times["(a) ba3us, our loop"]
    dann = times["(d) DANN, our loop"]
    lines = ["| row | ms per update | relative |", "|---|---|---|"]
    for name, value in times.items():
        base, word = (dann, "of our DANN") if "DANN" in name else (a, "of (a)")
        lines.append(f"| {name} | {value:.2f} | {value / base:.2f}× {word} |")
    text = "\n".join(lines)
    print(text)
    if args.out:
        threads = torch.get_num_threads()
        command = f"`python benchmarks/step.py --steps {args.steps}`"
        head = f"# Time of one step\n\n{command}; {threads} threads, torch {torch.__version__}.\n\n"
        args.out.write_text(head + text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
