"""The least and the most certain images of the target, small and inside the page."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

from ba3us.data.decoding import UnreadableError, quiet_pillow, thumbnail
from ba3us.engine.opening import list_images
from ba3us.engine.samples import Images
from ba3us.errors import UserError
from ba3us.report.parts import Part, Picture, Pictures, Section, Words
from ba3us.report.told import Told, percent

_EACH = 8  # pictures at either end
_SIDE = 150  # pixels of their longer side


def pictures_section(told: Told) -> Section | None:
    """Only of runs on images that predicted them."""
    if not isinstance(told.run.model.blueprint.samples, Images) or told.predictions is None or not told.paths:
        return None
    try:
        root = list_images(str(told.run.spec.target), told.run.spec.root).root
    except UserError as error:
        parts: list[Part] = [
            Words(f"This part is left out, because the images are not there. {error}", aside=True)
        ]
        return Section("images", "Images", parts)
    order = np.argsort(told.predictions[_sure(told)].astype(float).to_numpy(), kind="stable")
    least, most = order[:_EACH], order[::-1][: min(_EACH, max(0, len(order) - _EACH))]
    parts = [
        Words("Look at the least certain ones first: that is where mistakes are most likely."),
        Pictures("Least certain", _pictures(told, root, least)),
        Pictures("Most certain", _pictures(told, root, most)),
    ]
    return Section("images", "Images", [p for p in parts if not isinstance(p, Pictures) or p.pictures])


def _sure(told: Told) -> str:
    """The column that says how sure: calibrated confidence, where there is one."""
    return "probability" if told.run.calibration is None else "confidence"


def _pictures(told: Told, root: Path, rows: np.ndarray) -> list[Picture]:
    """Those that can still be read."""
    assert told.predictions is not None
    found = []
    for row in rows:
        path, name, probability = told.predictions.loc[row, ["path", "class", _sure(told)]]
        try:
            with quiet_pillow():
                small = thumbnail(root / path, _SIDE)
        except UnreadableError:
            continue
        true = [] if told.labels is None else [f"labelled {told.classes[told.labels[row]]}"]
        lines = [f"taken for {name}, {percent(float(probability))}", *true]
        found.append(Picture(f"data:image/jpeg;base64,{base64.b64encode(small).decode()}", path, lines))
    return found
