"""Systems that need pixels or batch norm, on photos, beside source-only under the same budget.

    python benchmarks/pixels.py FOLDER/amazon FOLDER/webcam --seeds 2 --steps 200 --size 96

Both folders hold one folder per class. The target is given to ``adapt_images`` as a list of images of the
`--present` classes, without labels; its folder names are read afterwards, to score what was predicted.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from ba3us.image_runs import ImageOptions, adapt_images

from ba3us.bench import markdown

PRESENT = "backpack,bike,calculator,headphones,keyboard"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--present", default=PRESENT)
    parser.add_argument("--methods", default="source-only,sspda,cdan+e,cdan+transnorm")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--train", default="all")
    args = parser.parse_args()
    options = {"batch_size": args.batch}
    images = ImageOptions(train=args.train, size=args.size)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "target.txt"
        files = (p for name in args.present.split(",") for p in sorted((args.target / name).iterdir()))
        listing.write_text("".join(f"{p.resolve()}\n" for p in files), encoding="utf-8")
        for method in args.methods.split(","):
            for seed in range(args.seeds):
                out = Path(folder) / f"{method}-{seed}"
                run = adapt_images(
                    args.source,
                    listing,
                    out,
                    method=method,
                    steps=args.steps,
                    options=options,
                    images=images,
                    seed=seed,
                    threads=1,
                )
                told = pd.read_csv(out / "predictions.csv")
                true = told["path"].map(lambda p: Path(p).parent.name)
                rows.append(
                    {
                        "method": method,
                        "accuracy": 100 * (told["class"] == true).mean(),
                        "absent": 100 * (~told["class"].isin(args.present.split(","))).mean(),
                        "seconds": run["seconds"],
                    }
                )
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby("method", sort=False)
    mean, spread = table.mean(), table.std(ddof=0)
    accuracy = [f"{m:.1f} ± {s:.1f}" for m, s in zip(mean["accuracy"], spread["accuracy"])]
    shown = {"accuracy": accuracy, "absent": mean["absent"].map("{:.1f}".format)}
    print(markdown(pd.DataFrame({**shown, "s/run": mean["seconds"].map("{:.0f}".format)}, index=mean.index)))


if __name__ == "__main__":
    main()
