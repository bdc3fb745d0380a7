"""HTML pages: the report of a run; and the Markdown page of all methods."""

from typing import TYPE_CHECKING, Any

from ba3us.report.methods_page import methods_page

if TYPE_CHECKING:
    from ba3us.report.run_page import write_run_page

__all__ = ["methods_page", "write_run_page"]


def __getattr__(name: str) -> Any:
    """Import the page of a run when it is first used: the page of the methods needs no torch."""
    if name == "write_run_page":
        from ba3us.report.run_page import write_run_page

        return write_run_page
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
