"""Leaving between two updates: a signal waits for the one at hand, so that the state can be saved whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_HEARD = (signal.SIGINT, signal.SIGTERM)


class Leaving:
    """While this lasts, the first Ctrl-C (or SIGTERM, if the program answers it) only sets `asked`.

    :meth:`now` then does what the signal would have done; a second one does it at once. Outside the main
    thread, which alone hears signals, nothing changes.
    """

    def __init__(self, wait: bool = True) -> None:
        self.asked = False
        self._wait = wait and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._heard: tuple[int, FrameType | None] = (signal.SIGINT, None)

    def __enter__(self) -> Leaving:
        answered = {number: signal.getsignal(number) for number in _HEARD if self._wait}
        self._before = {number: handler for number, handler in answered.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._give_back()
        if self.asked and kind is None:  # all was done before it could be heeded
            self.now()

    def now(self) -> None:
        """Leave: raises what the program raises at such a signal."""
        self._give_back()
        self.asked, handler = False, self._before.get(self._heard[0])
        if handler is not None:
            handler(*self._heard)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        twice, self.asked, self._heard = self.asked, True, (number, frame)
        if twice:
            self.now()

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
