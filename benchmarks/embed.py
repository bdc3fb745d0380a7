"""Photos to features with EfficientNet-Lite0: ours from JPEG, ours from the caches, and a plain PyTorch loop.

    python benchmarks/embed.py FOLDER [--images 600] [--rounds 1] [--out docs/results/embed.md]

Every row is a process of its own, and rounds are interleaved; the median counts. Seconds are those of the work:
imports, building the network and listing files are left out. All files are read once before the first row, so
that no row waits for the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from ba3us.cli.app import keep_memory
from ba3us.data.image_cache import decode
from ba3us.data.image_domains import ImageTarget, PixelArray
from ba3us.data.images import ImageList, read_images
from ba3us.data.store import cache_folder
from ba3us.embed import embed
from ba3us.nn.backbones import create_backbone
from ba3us.nn.inference import for_inference

BACKBONE = "efficientnet_lite0"
ROWS = {
    "plain": "plain loop: PIL, torchvision, DataLoader with 2 workers, float32",
    "cold": "`ba3us embed`, from JPEG (fills the cache)",
    "decoded": "`ba3us embed` with decoded images in the cache, but no features",
    "again": "`ba3us embed`, second pass, all from the cache",
    "bare": "our backbone alone, on ready tensors",
}


def chosen(folder: Path, count: int | None) -> ImageList:
    """All images of a folder, or so many of them, spread over it."""
    images = read_images(folder, labelled=False)
    if count is None or count >= len(images):
        return images
    rows = np.linspace(0, len(images) - 1, count).astype(int)
    return ImageList(images.root, [images.paths[row] for row in rows], None, None, [])


def plain(images: ImageList) -> tuple[float, np.ndarray]:
    """What most people write."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    backbone = create_backbone(BACKBONE)
    transform = transforms.Compose(
        [
            transforms.Resize((256, 256)),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(backbone.mean, backbone.std),
        ]
    )

    class Photos(Dataset):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, row: int) -> torch.Tensor:
            return transform(Image.open(images.file(row)).convert("RGB"))

    model = backbone.module.eval()
    start = time.perf_counter()
    with torch.no_grad():
        features = [model(x) for x in DataLoader(Photos(), batch_size=32, num_workers=2)]
    return time.perf_counter() - start, torch.cat(features).numpy()


def ours(images: ImageList, batch_size: int | None) -> tuple[float, np.ndarray]:
    """Our pipeline, with the cache that the environment names."""
    backbone = create_backbone(BACKBONE)
    start = time.perf_counter()
    result = embed(images, backbone, batch_size=batch_size)
    return time.perf_counter() - start, result.content.features


def bare(images: ImageList, batch_size: int | None) -> tuple[float, np.ndarray]:
    """Only the backbone, on one ready batch, one thread per core as in `embed`; the features of that batch."""
    backbone, batch = create_backbone(BACKBONE), batch_size or 4
    pixels = np.stack([decode(images.file(row), 256) for row in range(batch)])
    x = ImageTarget(PixelArray(pixels), backbone.size, backbone.mean, backbone.std).batch(slice(0, batch))
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    model = for_inference(backbone.module.eval().to(memory_format=torch.channels_last), backbone.size)

    def see(_: int) -> torch.Tensor:
        with torch.inference_mode():
            return model(x)

    keep_memory()
    with ThreadPoolExecutor(cores) as pool:
        start = time.perf_counter()
        seen = list(pool.map(see, range(max(1, len(images) // batch))))
        seconds = time.perf_counter() - start
    return seconds * len(images) / (len(seen) * batch), seen[0].numpy()


def run_row(name: str, args: argparse.Namespace, out: Path) -> float:
    """Run one row in a process of its own; returns its seconds."""
    command = [sys.executable, __file__, str(args.folder), "--row", name, "--out", str(out)]
    for option in ("images", "batch_size"):
        if getattr(args, option) is not None:
            command += [f"--{option.replace('_', '-')}", str(getattr(args, option))]
    return float(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["seconds"]
    )


def row(args: argparse.Namespace) -> None:
    """The child's side of :func:`run_row`."""
    images = chosen(args.folder, args.images)
    if args.row == "plain":
        seconds, features = plain(images)
    elif args.row == "bare":
        seconds, features = bare(images, args.batch_size)
    else:
        keep_memory()
        if args.row == "decoded":
            shutil.rmtree(cache_folder() / "activations", ignore_errors=True)
        seconds, features = ours(images, args.batch_size)
    np.save(args.out, features)
    print(json.dumps({"seconds": seconds}))


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def turned(path: Path) -> bool:
    """Whether the file says that it is to be shown turned or mirrored."""
    from PIL import Image

    with Image.open(path) as image:
        return image.getexif().get(0x0112, 1) != 1


def measure(args: argparse.Namespace) -> str:
    """Run everything; the report as Markdown."""
    images = chosen(args.folder, args.images)
    for number in range(len(images)):
        images.file(number).read_bytes()
    names = [name for name in ROWS if name not in args.leave_out]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    found: dict[str, np.ndarray] = {}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["BA3US_CACHE"] = folder
            for name in names:
                seconds[name].append(run_row(name, args, Path(folder) / f"{name}.npy"))
                found[name] = np.load(Path(folder) / f"{name}.npy")
    rate = {name: len(images) / statistics.median(values) for name, values in seconds.items()}
    table = ["| row | images/s | against the plain loop |", "|---|---:|---:|"]
    table += [f"| {ROWS[name]} | {value:.1f} | {value / rate['plain']:.2f}× |" for name, value in rate.items()]
    lines = ["\n".join(table), ""]
    upright = np.array([not turned(images.file(number)) for number in range(len(images))])
    for name in ("cold", "decoded", "again"):
        near = cosines(found["plain"], found[name])[upright]
        said = f"lowest {near.min():.6f}, mean {near.mean():.6f}"
        lines.append(f"Cosine to the plain loop's features, {name}: {said}.")
    lines.append(f"Left out of this: {(~upright).sum()} that EXIF says to turn, which only ours does.")
    lines.append(
        f"From decoded images we reach {100 * rate['decoded'] / rate['bare']:.0f} % of the bare network's rate."
    )
    command = f"python benchmarks/embed.py {args.folder.name} --rounds {args.rounds}"
    command += f" --images {args.images}" if args.images else ""
    head = (
        f"# Embedding {len(images)} photos with EfficientNet-Lite0\n\n    {command}\n\n"
        f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__.split('+')[0]}, rows in turns, each "
        f"in its own process; plain loop with batches of 32.\n"
    )
    return head + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, help="so many, spread over the folder (default: all)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch-size", type=int, help="of ours")
    parser.add_argument("--leave-out", nargs="*", default=[], choices=[*ROWS], metavar="ROW")
    parser.add_argument("--row", choices=[*ROWS], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.row:
        return row(args)
    text = measure(args)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
