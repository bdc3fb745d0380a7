"""What one image costs, for sums over large datasets: decoding, reading, the network, bytes kept.

    python benchmarks/per_image.py PHOTOS [--threads 2] [--seconds 12] [--out docs/results/per_image.md]

PHOTOS is a folder of JPEGs. Times are of this machine's CPU. Bytes are the same everywhere: kept pixels and
activations by their shapes, activations that a training step holds by what autograd saves.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ba3us.data import image_domains
from ba3us.data.image_cache import decode
from ba3us.data.store import Store
from ba3us.nn.backbones import Backbone, create_backbone, cut

SIDE, SIZE, BATCH, PHOTOS = 256, 224, 12, 300


def per_image(run: Callable[[], int], seconds: float) -> float:
    """Least milliseconds per image over repeated runs of about `seconds` in all; the machine may be shared."""
    run()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        count = run()
        taken.append(1000 * (time.perf_counter() - start) / count)
    return min(taken)


def photos(folder: Path) -> list[Path]:
    """Some of the JPEGs below a folder, evenly spread."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise SystemExit(f"No JPEG is in {folder}: give a folder of photos.")
    return files[:: max(1, len(files) // PHOTOS)][:PHOTOS]


def described(files: list[Path]) -> str:
    from PIL import Image

    sizes = np.array([Image.open(path).size for path in files])
    kilobytes = np.mean([path.stat().st_size for path in files]) / 1000
    return f"{len(files)} JPEGs of {sizes[:, 0].mean():.0f}×{sizes[:, 1].mean():.0f} px and {kilobytes:.0f} kB"


def decoding(files: list[Path], seconds: float) -> float:
    """From file to square, by one thread."""

    def run() -> int:
        for path in files:
            decode(path, SIDE)
        return len(files)

    return per_image(run, seconds)


def reading(files: list[Path], seconds: float) -> float:
    """From the cache of squares to normalised random crops, by one thread."""
    squares = np.stack([decode(path, SIDE) for path in files])
    keys = [b"%016d" % row for row in range(len(files))]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), squares.shape[1:], np.uint8, squares.nbytes, keys)
        for start in range(0, len(keys), store.shard_rows):
            part = slice(start, start + store.shard_rows)
            store.add(keys[part], squares[part])
        order = np.random.default_rng(0).permutation(len(keys))[: len(keys) // BATCH * BATCH].reshape(-1, BATCH)

        def run() -> int:
            for rows in order:
                content, found = store.read([keys[row] for row in rows])
                assert found.all()
                windows = image_domains.random_windows(0, rows, rows, SIDE - SIZE)
                cut_out = image_domains.cut(torch.from_numpy(content), windows, SIZE)
                image_domains.normalised(cut_out, (0.5,) * 3, (0.5,) * 3)
            return order.size

        return per_image(run, seconds)


def index_bytes(count: int = 200_000) -> float:
    """Bytes of memory that a process needs for each row it may ask the cache for."""
    keys = [b"%016d" % row for row in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), (1,), np.uint8, count, keys)
        store.add(keys, np.zeros((count, 1), dtype=np.uint8))
        del keys, store
        tracemalloc.start()
        keys = [b"%016d" % row for row in range(count)]
        store = Store(Path(folder), (1,), np.uint8, count, keys)
        assert keys[-1] in store
        held = tracemalloc.get_traced_memory()[0] / count
        tracemalloc.stop()
    return held


def resnet() -> Backbone:
    backbone = create_backbone("resnet50", pretrained=False)
    backbone.module.to(memory_format=torch.channels_last)
    return backbone


def forward(model: nn.Module, x: torch.Tensor, seconds: float) -> float:
    def run() -> int:
        with torch.no_grad():
            model(x)
        return len(x)

    model.eval()
    return per_image(run, seconds)


def training(model: nn.Module, x: torch.Tensor, seconds: float) -> float:
    def run() -> int:
        model.zero_grad()
        model(x).sum().backward()
        return len(x)

    model.train()
    return per_image(run, seconds)


def saved_bytes(model: nn.Module, x: torch.Tensor) -> float:
    """Bytes per image that autograd keeps between forward and backward, beside the parameters."""
    known = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = model(x).sum()
    del total
    return sum(held.values()) / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12, help="about so long for each time")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    files, seconds = photos(args.photos), args.seconds
    x = torch.randn(BATCH, 3, SIZE, SIZE).to(memory_format=torch.channels_last)
    whole = resnet().module
    parts = cut(resnet(), "tail", check=False)
    assert parts.front is not None
    first = next(name for name, _ in parts.body.named_parameters()).rpartition(".conv")[0]
    with torch.no_grad():
        middle, vector = parts.front(x), whole.eval()(x)
    rows: list[tuple[str, str]] = [
        ("decode, one thread", f"{decoding(files, seconds):.2f} ms"),
        ("read from the cache, crop, normalise, one thread", f"{reading(files, seconds):.2f} ms"),
        ("ResNet-50 forward", f"{forward(whole, x, seconds):.1f} ms"),
        ("ResNet-50 forward and backward, `all`", f"{training(whole, x, seconds):.1f} ms"),
        (f"frozen part of `tail` (up to {first}), forward", f"{forward(parts.front, x, seconds):.1f} ms"),
        ("`tail`, forward and backward", f"{training(parts.body, middle, seconds):.1f} ms"),
        ("decoded square", f"{SIDE * SIDE * 3:,} bytes"),
        ("kept activation of `tail`, float16, per view", f"{2 * middle[0].numel():,} bytes"),
        ("kept vector of `head`, float32, per view", f"{4 * vector[0].numel():,} bytes"),
        ("index of the cache, in memory, per square or view", f"{index_bytes():.0f} bytes"),
        ("held between forward and backward, `all`, float32", f"{saved_bytes(whole, x) / 1e6:.1f} MB"),
        (
            "held between forward and backward, `tail`, float32",
            f"{saved_bytes(parts.body, middle) / 1e6:.1f} MB",
        ),
    ]
    text = "\n".join(["| per image | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    print(text)
    if args.out:
        about = f"{described(files)}; batches of {BATCH}, {SIZE} px; {args.threads} threads for the network, "
        head = "# What one image costs\n\n`python benchmarks/per_image.py PHOTOS`: "
        head += f"{about}torch {torch.__version__}. Times are of a CPU, the least of several runs.\n\n"
        args.out.write_text(head + text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
