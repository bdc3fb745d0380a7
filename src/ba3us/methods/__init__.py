"""Methods: one short file per system. Importing this package registers every file in it."""

import importlib
import pkgutil

from ba3us.methods.registry import Entry, entries, get

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Entry", "entries", "get"]
