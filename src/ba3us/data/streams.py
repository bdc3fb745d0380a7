"""Endless streams of sample indices: any domain size, any batch size, resumable from a position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BatchIndices:
    """Samples of one step: indices into the source, the target, and the source again for the borrowed."""

    source: np.ndarray
    target: np.ndarray
    borrowed: np.ndarray


def draw_numbers(phase: int, step: int, stream: int, count: int) -> np.ndarray:
    """A number for each sample of a batch that no other sample drawn in the run has."""
    first = (((phase << 34) + step << 2) + stream) << 24
    return np.arange(first, first + count, dtype=np.int64)


class Shuffled:
    """Endless shuffled passes over 0 … n-1.

    Pass e is a permutation drawn from (seed, stream, e) alone, so the state of the stream is its position. A
    batch larger than the domain cycles through it.
    """

    def __init__(self, size: int, seed: int, stream: int) -> None:
        self.size, self.seed, self.stream = size, seed, stream
        self.position = 0
        self._pass = -1
        self._order = np.empty(0, dtype=np.int64)

    def take(self, count: int) -> np.ndarray:
        """The next `count` indices."""
        parts = [np.empty(0, dtype=np.int64)]
        while count > 0:
            number, offset = divmod(self.position, self.size)
            if number != self._pass:
                generator = np.random.default_rng([self.seed, self.stream, number])
                self._pass, self._order = number, generator.permutation(self.size)
            part = self._order[offset : offset + count]
            parts.append(part)
            self.position += len(part)
            count -= len(part)
        return np.concatenate(parts)


class Balanced:
    """Class-balanced sampling: every round draws one sample of each class, in shuffled order.

    Each class goes through its samples in shuffled passes of its own. In round k it gives its k-th sample, so
    the state is one position, too.
    """

    def __init__(self, labels: np.ndarray, seed: int, stream: int) -> None:
        by_class = np.argsort(labels, kind="stable")
        self.rows = np.split(by_class, np.flatnonzero(np.diff(labels[by_class])) + 1)
        self.classes = Shuffled(len(self.rows), seed, stream)
        # streams below 16 are those of a run
        self.streams = [Shuffled(len(rows), seed, 16 + c) for c, rows in enumerate(self.rows)]

    @property
    def position(self) -> int:
        """Number of samples taken."""
        return self.classes.position

    @position.setter
    def position(self, value: int) -> None:
        self.classes.position = value

    def take(self, count: int) -> np.ndarray:
        """The next `count` indices."""
        rounds = (self.position + np.arange(count)) // len(self.rows)
        indices = np.empty(count, dtype=np.int64)
        for i, c in enumerate(self.classes.take(count)):
            self.streams[c].position = int(rounds[i])
            indices[i] = self.rows[c][self.streams[c].take(1)[0]]
        return indices


class Streams:
    """The three streams of a run: source, target, borrowed. With `labels`, the source is class-balanced."""

    def __init__(self, source_size: int, target_size: int, seed: int, labels: np.ndarray | None = None) -> None:
        balanced = None if labels is None else Balanced(labels, seed, 0)
        self.source = balanced or Shuffled(source_size, seed, 0)
        self.target = Shuffled(target_size, seed, 1)
        self.borrowed = Shuffled(source_size, seed, 2)

    def draw(self, source: int, target: int, borrowed: int) -> BatchIndices:
        """The next indices of each stream."""
        return BatchIndices(self.source.take(source), self.target.take(target), self.borrowed.take(borrowed))

    def positions(self) -> list[int]:
        """The state of the streams."""
        return [self.source.position, self.target.position, self.borrowed.position]

    def seek(self, positions: list[int]) -> None:
        """Continue from :meth:`positions`."""
        self.source.position, self.target.position, self.borrowed.position = positions
