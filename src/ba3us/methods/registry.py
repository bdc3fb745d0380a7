"""Where methods are registered, listed and created by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ba3us.errors import did_you_mean, require
from ba3us.methods.base import Method, MethodConfig, MethodInfo
from ba3us.nn import Network

_M = TypeVar("_M", bound=type[Method])


@dataclass(frozen=True)
class Entry:
    """A named system: a method class, the settings that make it this system, and what to know of it."""

    name: str
    method: type[Method]
    info: MethodInfo
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, **options: Any) -> MethodConfig:
        """The hyper-parameters, with `options` over the system's own settings."""
        return self.method.Config.build(**{**self.settings, **options})

    def create(self, network: Network, config: MethodConfig) -> Method:
        """The method, for a network."""
        return self.method(config, network)


_ENTRIES: dict[str, Entry] = {}


def register(name: str, info: MethodInfo, **settings: Any) -> Callable[[_M], _M]:
    """Class decorator: make a method known under `name`; stack it to name several settings of one class."""

    def add(method: _M) -> _M:
        assert name not in _ENTRIES, name
        _ENTRIES[name] = Entry(name, method, info, settings)
        return method

    return add


def get(name: str) -> Entry:
    """The entry called `name`."""
    require(name in _ENTRIES, f"Unknown method {name!r}: {did_you_mean(name, _ENTRIES)}")
    return _ENTRIES[name]


def entries() -> Iterator[Entry]:
    """All entries, in alphabetical order."""
    return iter(sorted(_ENTRIES.values(), key=lambda e: e.name))
