"""Opening image files, whatever is in them, as small RGB squares."""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ba3us.errors import optional_import

if TYPE_CHECKING:
    from PIL.Image import Image, Transpose

MOST_PIXELS = 90_000_000  # larger ones could fill the memory; JPEGs are measured after shrinking
_ORIENTATION = 0x0112  # the EXIF tag
# The JPEG decoder may shrink an image to no less than this many times the wanted side. Estimated on 27 photos
# of 1000 px, brought to smaller sides and back up: at 3.1 times, EfficientNet-Lite0's features keep a mean
# cosine of 0.9995 (lowest 0.9977) to those of whole decoding; at 2 times 0.9975 (0.990).
DRAFT = 3

A = TypeVar("A")
B = TypeVar("B")


class UnreadableError(Exception):
    """A file that gives no image; the message is the reason."""


def decode(path: str | os.PathLike[str], side: int) -> np.ndarray:
    """An image file as uint8 [side, side, 3], resized without keeping its aspect.

    EXIF orientation is applied, transparency is laid on white, 16-bit and float images are brought to 8
    bits, of an animation the first frame is taken. Large JPEGs are shrunk while decoding.

    Raises
    ------
    UnreadableError
        With the reason, for anything that can't be decoded.
    """
    pil = optional_import("PIL.Image", "vision")
    return np.array(_shrunk(path, side, lambda image: image.resize((side, side), pil.Resampling.BILINEAR)))


def thumbnail(path: str | os.PathLike[str], side: int) -> bytes:
    """An image file as a small JPEG for people: as :func:`decode`, but its aspect is kept."""

    def shrink(image: Image) -> Image:
        small = image.copy()
        small.thumbnail((side, side))
        small.info.clear()  # comments and places stay with the file
        return small

    out = io.BytesIO()
    _shrunk(path, side, shrink).save(out, "JPEG", quality=70)
    return out.getvalue()


def _shrunk(path: str | os.PathLike[str], side: int, shrink: Callable[[Image], Image]) -> Image:
    """The image upright, in RGB and made small; UnreadableError with the reason if there is none."""
    pil = optional_import("PIL.Image", "vision")
    _check_file(path)
    try:
        with pil.open(path) as image:
            image.draft(image.mode, (DRAFT * side, DRAFT * side))
            if image.width * image.height > MOST_PIXELS:
                raise UnreadableError(f"{image.width}×{image.height} pixels are too many: shrink the image")
            turn = _turn(image)
            small = shrink(_rgb(image))
        return small if turn is None else small.transpose(turn)
    except UnreadableError:
        raise
    except pil.DecompressionBombError as error:
        raise UnreadableError("too many pixels: shrink the image") from error
    except pil.UnidentifiedImageError as error:
        raise UnreadableError("not an image, or a damaged one") from error
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise UnreadableError(f"damaged ({str(error)[:120] or type(error).__name__})") from error


def map_in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """``map`` with threads: results in order, and only a few computed before they are asked for."""
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_file(path: str | os.PathLike[str]) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise UnreadableError("a broken link" if os.path.islink(path) else "the file is missing") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"can't be read ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("not a regular file")  # reading a pipe would wait for ever
    if status.st_size == 0:
        raise UnreadableError("the file is empty")
    if not os.access(path, os.R_OK):
        raise UnreadableError("no permission to read it")


def _turn(image: Image) -> Transpose | None:
    """The transposition that puts an image upright; None if there is none or its EXIF is damaged."""
    pil = optional_import("PIL.Image", "vision")
    turns = {
        2: pil.Transpose.FLIP_LEFT_RIGHT,
        3: pil.Transpose.ROTATE_180,
        4: pil.Transpose.FLIP_TOP_BOTTOM,
        5: pil.Transpose.TRANSPOSE,
        6: pil.Transpose.ROTATE_270,
        7: pil.Transpose.TRANSVERSE,
        8: pil.Transpose.ROTATE_90,
    }
    try:
        return turns.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:
        return None


def _rgb(image: Image) -> Image:
    pil = optional_import("PIL.Image", "vision")
    if image.mode == "RGB":
        return image
    if image.mode.startswith(("I", "F")):
        return pil.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = pil.new("RGBA", layered.size, (255, 255, 255, 255))
        return pil.alpha_composite(white, layered).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Grey values of a deeper mode as uint8; where the mode does not tell the depth, the largest value does."""
    values = np.nan_to_num(values.astype(np.float32))
    largest = float(values.max())
    if mode.startswith("I;16"):
        whole = 65535.0
    elif mode == "F" and largest <= 1:
        whole = 1.0
    else:
        whole = 255.0 if largest <= 255 else max(65535.0, largest)
    return np.clip(values * (255.0 / whole) + 0.5, 0, 255).astype(np.uint8)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """No warnings about large or slightly broken images: :func:`decode` deals with them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
