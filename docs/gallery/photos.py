"""Photos from folders: adapt, look at the page, predict more. Here they are drawn, so that the script runs."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ba3us.adapt import adapt, predict
from ba3us.report import write_run_page
from ba3us.run.spec import Spec

SHAPES = {"ball": "ellipse", "box": "rectangle", "roof": "triangle", "bar": "bar"}


def draw(shape: str, seed: int, evening: bool) -> Image.Image:
    """A shape somewhere on a noisy ground: by day, or in dim and reddish light."""
    noise = np.random.default_rng(seed)
    image = Image.fromarray(noise.integers(150, 255, (96, 96, 3)).astype(np.uint8))
    x, y, size = noise.integers(8, 30), noise.integers(8, 30), noise.integers(36, 56)
    pen, colour = ImageDraw.Draw(image), tuple(noise.integers(0, 120, 3).tolist())
    if shape == "triangle":
        pen.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill=colour)
    elif shape == "bar":
        pen.rectangle((x, y, x + size, y + size // 4), fill=colour)
    else:
        getattr(pen, shape)((x, y, x + size, y + size), fill=colour)
    light = np.array([0.8, 0.45, 0.35] if evening else [1.0, 1.0, 1.0])
    return Image.fromarray((np.asarray(image) * light).astype(np.uint8))


def write(folder: Path, shapes: list[str], count: int, evening: bool, labelled: bool) -> Path:
    """Photos below `folder`: in a folder for each class, or all in one."""
    for number, name in enumerate(shapes):
        there = folder / name if labelled else folder
        there.mkdir(parents=True, exist_ok=True)
        for k in range(count):
            seed = 1000 * number + k + 500 * evening
            draw(SHAPES[name], seed, evening).save(there / f"{number}_{k}.png")
    return folder


home = Path(sys.argv[1] if len(sys.argv) > 1 else "toy-photos")
labelled = write(home / "labelled", list(SHAPES), 10, evening=False, labelled=True)
new = write(home / "new", ["ball", "box"], 12, evening=True, labelled=False)  # two of the four classes
more = write(home / "more", ["ball", "box"], 3, evening=True, labelled=False)

run = adapt(Spec(source=str(labelled), target=str(new), method_params={"steps": 60}), home / "run")
print("verdict:", run.verdict.outcome, "-", *run.verdict.reasons)
print(run.presence.to_string())
print("the page:", write_run_page(home / "run"))
print("more photos:", predict(home / "run", more, home / "more.csv")["predicted"])
