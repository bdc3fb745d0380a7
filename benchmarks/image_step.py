"""Time of one full BA³US step on images with ResNet-50: our loop beside the plain form of the released code.

    python benchmarks/image_step.py [--rows plain ours …] [--rounds 2] [--out docs/results/image_step.md]
    python benchmarks/image_step.py --batch 8 --size 96      # a quick trial

Every row is a process of its own (how memory is kept is a matter of the process), rounds are interleaved, and
the fastest counts (other work on the machine only adds); each process does one step before those that are
timed. Weights are random: they do not matter for time. The plain form is given its batches ready; ours cuts
them out of pixels as in a real run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from released import PlainStep
from torch import nn
from torch.nn import functional as F

from ba3us import methods
from ba3us.cli.app import keep_memory
from ba3us.data import Streams
from ba3us.data.image_domains import ImageSource, ImageTarget, PixelArray
from ba3us.nn import Network
from ba3us.nn.backbones import create_backbone
from ba3us.training import Callback, Execution, Trainer

CLASSES, LENT = 31, 0.25
ROWS = {
    "plain": "plain form: NCHW, three passes, unfused SGD, torch's dropout",
    "ours": "ours, float32",
    "bf16": "ours, bfloat16 autocast",
    "compiled": "ours, float32, `--compile`",
}


def build(batch: int) -> tuple[Network, nn.Module, tuple[float, ...], tuple[float, ...]]:
    torch.manual_seed(0)
    backbone = create_backbone("resnet50", pretrained=False)
    entry = methods.get("ba3us")
    config = entry.options(steps=10**9, refresh_every=10**9, batch_size=batch)
    network = Network(backbone.module, backbone.dim, CLASSES, entry.method.head(config))
    return network, entry.create(network, config), backbone.mean, backbone.std


def random_weights(name: str, folder: Path) -> str:
    """A file with weights for a backbone."""
    path = folder / "random.pth"
    torch.save(create_backbone(name, pretrained=False).module.state_dict(), path)
    return str(path)


class Clock(Callback):
    """Seconds of every update."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_start(self, trainer) -> None:
        self._last = time.perf_counter()

    def on_step(self, trainer, step) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


class Constant(Streams):
    """Streams that always lend a quarter of a batch."""

    def draw(self, source: int, target: int, borrowed: int):
        return super().draw(source, target, int(LENT * target))


def ours(batch: int, size: int, steps: int, precision: str = "32-true", compiled: bool = False) -> list[float]:
    """The real loop on image domains; updates 1 … `steps`."""
    network, method, mean, std = build(batch)
    network.to(memory_format=torch.channels_last)
    if compiled:
        network.backbone.compile()
    generator, side = np.random.default_rng(0), round(size * 8 / 7)
    pixels = PixelArray(generator.integers(0, 256, (4 * batch, side, side, 3), dtype=np.uint8))
    source = ImageSource(pixels, np.arange(len(pixels)) % CLASSES, size, mean, std, num_classes=CLASSES)
    target = ImageTarget(pixels, size, mean, std)
    recipe = method.recipe()
    phase = dataclasses.replace(recipe.phases[-1], steps=steps + 1, horizon=10**6)
    recipe = dataclasses.replace(recipe, phases=(phase,))
    clock, streams = Clock(), Constant(len(source), len(target), 0)
    run = Execution(precision=precision)
    keep_memory()  # as `ba3us adapt` does
    Trainer(network, method, run, recipe=recipe, streams=streams, callbacks=[clock]).fit(source, target)
    return clock.seconds[1:]


def plain(batch: int, size: int, steps: int) -> list[float]:
    """The same step as the released program writes it."""
    network, method, _, _ = build(batch)
    new = [*network.bottleneck.parameters(), *network.classifier.parameters(), *method.parameters()]
    step = PlainStep(network, method, [{"params": network.backbone.parameters(), "lr": 0.001}, {"params": new}])
    lent = int(LENT * batch)
    xs, xt, xm = (torch.randn(n, 3, size, size) for n in (batch, batch, lent))
    ys, ym = torch.arange(batch) % CLASSES, torch.arange(lent) % CLASSES
    seconds = []
    for i in range(steps + 1):
        start = time.perf_counter()
        step(i, xs, ys, xt, xm, ym)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def rate(work: Callable[[], object], operations: float, seconds: float = 2.0) -> float:
    """The best GFLOP/s of several calls."""
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = max(best, operations / (time.perf_counter() - start) / 1e9)
    return best


def peaks(seconds: float = 2.0) -> tuple[float, float]:
    """GFLOP/s of a large matrix product, and of a 3×3 convolution of ResNet-50 (256 maps of 14×14)."""
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    x = torch.randn(36, 256, 14, 14).to(memory_format=torch.channels_last)
    w = torch.randn(256, 256, 3, 3).to(memory_format=torch.channels_last)
    with torch.no_grad():
        product = rate(lambda: a @ b, 2 * 4096**3, seconds)
        convolution = rate(lambda: F.conv2d(x, w, padding=1), 2 * 36 * 14 * 14 * 256 * 256 * 9, seconds)
    return product, convolution


def forward_operations(size: int) -> float:
    """Floating-point operations of ResNet-50's convolutions for one image."""
    model, total = create_backbone("resnet50", pretrained=False).module.eval(), [0.0]

    def count(layer: nn.Conv2d, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        total[0] += 2 * output[0].numel() * layer.weight[0].numel()

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        model(torch.randn(1, 3, size, size))
    return total[0]


def row(name: str, batch: int, size: int, steps: int) -> dict[str, object]:
    """Run one row in this process."""
    if name == "plain":
        seconds = plain(batch, size, steps)
    else:
        precision = "bf16-mixed" if name == "bf16" else "32-true"
        seconds = ours(batch, size, steps, precision, name == "compiled")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": seconds, "peak": peak, "free": peaks(0.5)[0]}


def measure(args: argparse.Namespace) -> str:
    """Run everything; the report as Markdown."""
    seconds: dict[str, list[float]] = {name: [] for name in args.rows}
    memory: dict[str, float] = {}
    free: list[float] = []  # what the machine could do right after each row: little of it means other work
    for _ in range(args.rounds):
        for name in args.rows:
            command = [sys.executable, __file__, "--row", name, "--batch", str(args.batch)]
            command += ["--size", str(args.size), "--steps", str(args.steps)]
            said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(name, said, file=sys.stderr, flush=True)
            seconds[name] += said["seconds"]
            free.append(said["free"])
            memory[name] = said["peak"]
    product, convolution = peaks()
    product = max(product, *free)
    images = 2 * args.batch + int(LENT * args.batch)
    work = 3 * images * forward_operations(args.size) / 1e9  # backward costs twice the forward pass
    median = {name: min(values) for name, values in seconds.items()}
    table = ["| row | s per step | against the plain form | GFLOP/s | share of peak | peak memory (GB) |"]
    table.append("|---|---:|---:|---:|---:|---:|")
    for name, value in median.items():
        against = f"{median['plain'] / value:.2f}×" if "plain" in median else ""
        reached = f"{work / value:.0f} | {100 * work / value / product:.0f} %"
        table.append(f"| {ROWS[name]} | {value:.2f} | {against} | {reached} | {memory[name]:.1f} |")
    command = f"python benchmarks/image_step.py --rows {' '.join(args.rows)} --rounds {args.rounds}"
    command += f" --steps {args.steps} --batch {args.batch} --size {args.size}"
    cores, torch_version = len(os.sched_getaffinity(0)), torch.__version__.split("+")[0]
    return f"""# Time of one step on images

    {command}

ResNet-50, {args.size} px, {args.batch} + {args.batch} + {int(LENT * args.batch)} images, all of it trained;
{cores} cores, torch {torch_version}, rows in turns, each in its own process.

{chr(10).join(table)}

Peak of this machine, float32: {product:.0f} GFLOP/s in a 4096³ matrix product. A bare 3×3 convolution (36
images, 256 maps of 14×14, channels last, forward) reaches {convolution:.0f}, that is
{100 * convolution / product:.0f} %. A step is counted as three forward passes' worth of convolutions:
{work:.0f} GFLOP. Right after each timed process the same product ran at {", ".join(f"{f:.0f}" for f in free)}
GFLOP/s: where that is low, others were using the machine.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=[*ROWS], default=["plain", "ours"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1, help="timed steps per process")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--row", choices=[*ROWS], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.row:
        print(json.dumps(row(args.row, args.batch, args.size, args.steps)))
        return
    text = measure(args)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
