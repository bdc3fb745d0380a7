"""Partial domain adaptation: BA³US, the methods it is compared with, and trust without target labels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ba3us.estimator import PartialAdapter

__version__ = "0.1.0"
__all__ = ["PartialAdapter", "__version__"]


def __getattr__(name: str) -> Any:
    """The estimator, imported when it is first asked for: `import ba3us` alone stays fast."""
    if name == "PartialAdapter":
        from ba3us.estimator import PartialAdapter

        return PartialAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
