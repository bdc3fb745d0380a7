"""From a spec to opened samples. A new kind is a file like ``arrays.py`` and two names here."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from ba3us.run.arrays import ArraySamples, open_arrays
from ba3us.run.images import ImageSamples, open_image_domains
from ba3us.run.samples import Opened, Samples
from ba3us.run.spec import Spec

KINDS: dict[str, type[Samples]] = {kind.kind: kind for kind in (ArraySamples, ImageSamples)}
_OPEN = {"arrays": open_arrays, "images": open_image_domains}


def open_spec(spec: Spec, show: bool = False) -> Opened:
    """Open both domains of a spec; its paths decide the kind."""
    return _OPEN[spec.kind](spec, show)


def digest(spec: Spec, opened: Opened, extra: Any) -> str:
    """Hash everything that the result depends on; `extra` is what only the caller knows."""
    # a run may be resumed with another on_nan: it has had no effect so far
    relevant = dataclasses.replace(
        spec, source=None, target=None, cache_gb=None, workers=None, weights=None, on_nan="stop"
    )
    text = repr((repr(relevant), spec.method_options(), opened.samples, opened.classes, extra))
    hasher = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16)
    for part in opened.content():
        hasher.update(part)
    return hasher.hexdigest()
