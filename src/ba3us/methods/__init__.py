"""Methods: one short file per method; importing the package registers all of them."""

import importlib
import pkgutil

from ba3us.methods.registry import Entry, entries, get

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Entry", "entries", "get"]
