"""Ways to damage a file: cut, flipped, blanked, shuffled, or another file under its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Generator = np.random.Generator
Damage = Callable[[bytes, Generator], bytes]


def cut(content: bytes, g: Generator) -> bytes:
    """The beginning alone."""
    return content[: int(g.integers(0, max(1, len(content))))]


def one_bit(content: bytes, g: Generator) -> bytes:
    """One bit is another."""
    return _flipped(content, g, 1)


def some_bits(content: bytes, g: Generator) -> bytes:
    """Up to sixteen bits are others."""
    return _flipped(content, g, int(g.integers(2, 17)))


def blank(content: bytes, g: Generator) -> bytes:
    """A part is zeros."""
    start, end = _part(content, g)
    return content[:start] + bytes(end - start) + content[end:]


def noise(content: bytes, g: Generator) -> bytes:
    """A part is random."""
    start, end = _part(content, g)
    return content[:start] + g.bytes(end - start) + content[end:]


def lost(content: bytes, g: Generator) -> bytes:
    """A part is missing."""
    start, end = _part(content, g)
    return content[:start] + content[end:]


def twice(content: bytes, g: Generator) -> bytes:
    """A part is there twice."""
    start, end = _part(content, g)
    return content[:end] + content[start:end] + content[end:]


def longer(content: bytes, g: Generator) -> bytes:
    """Something follows."""
    return content + g.bytes(int(g.integers(1, 200)))


DAMAGES: tuple[Damage, ...] = (cut, one_bit, one_bit, some_bits, blank, noise, lost, twice, longer)


def damaged(content: bytes, others: Sequence[bytes], g: Generator) -> tuple[str, bytes]:
    """A damaged copy and what was done to it; one in ten is another file's content."""
    if others and g.random() < 0.1:
        return "mislabelled", others[int(g.integers(len(others)))]
    damage = DAMAGES[int(g.integers(len(DAMAGES)))]
    return damage.__name__, damage(content, g)


def _flipped(content: bytes, g: Generator, count: int) -> bytes:
    changed = bytearray(content)
    for at in g.integers(0, len(changed), count) if changed else ():
        changed[at] ^= 1 << int(g.integers(8))
    return bytes(changed)


def _part(content: bytes, g: Generator) -> tuple[int, int]:
    start = int(g.integers(0, len(content) + 1))
    return start, min(len(content), start + int(g.integers(1, 1 + max(1, len(content) // 4))))
