"""Processes that work for this one, and end with it however it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process


def serve_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it is gone, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()


@contextmanager
def main_unseen() -> Iterator[None]:
    """Processes that are started meanwhile don't import the caller's script, which may have no `main` guard."""
    main = sys.modules["__main__"]
    names = ("__spec__", "__file__")
    before = {name: getattr(main, name) for name in names if hasattr(main, name)}
    main.__spec__ = None
    main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        vars(main).update(before)


def end_workers(pool: ProcessPoolExecutor, at_once: bool) -> None:
    """Let the processes of a pool go, without what they are doing if `at_once`."""
    for process in list((pool._processes or {}).values()) if at_once else ():
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)
