"""Where methods are registered, listed and created by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ba3us.errors import did_you_mean, require
from ba3us.methods.base import Method, MethodConfig, MethodInfo
from ba3us.methods.published import Published, lookup
from ba3us.nn import Network

_M = TypeVar("_M", bound=type[Method])


@dataclass(frozen=True)
class Entry:
    """A named system: a method class, the settings that make it this system, and what to know of it."""

    name: str
    method: type[Method]
    info: MethodInfo
    settings: dict[str, Any] = field(default_factory=dict)
    protocols: dict[str, Published] = field(default_factory=dict)

    def config(self, protocol: str | None = None, task: str | None = None, **options: Any) -> MethodConfig:
        """The hyper-parameters: `options` over the system's own settings over those published.

        Without a `protocol` the defaults hold, which are the same budget for every method.
        """
        published = lookup(self.name, self.protocols, protocol, task) if protocol else {}
        return self.method.Config.build(**{**published, **self.settings, **options})

    def create(self, network: Network, config: MethodConfig) -> Method:
        """The method, for a network."""
        return self.method(config, network)


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str, info: MethodInfo, protocols: dict[str, Published] | None = None, **settings: Any
) -> Callable[[_M], _M]:
    """Class decorator: make a method known under `name`; stack it to name several settings of one class.

    `settings` make it this system and win over the settings published for a dataset (`protocols`).
    """

    def add(method: _M) -> _M:
        assert name not in _ENTRIES, name
        _ENTRIES[name] = Entry(name, method, info, settings, protocols or {})
        return method

    return add


def get(name: str) -> Entry:
    """The entry called `name`."""
    require(name in _ENTRIES, f"Unknown method {name!r}: {did_you_mean(name, _ENTRIES)}")
    return _ENTRIES[name]


def entries() -> Iterator[Entry]:
    """All entries, in alphabetical order."""
    return iter(sorted(_ENTRIES.values(), key=lambda e: e.name))
