"""Reports: pages made from what the code and the runs say themselves."""

from typing import TYPE_CHECKING, Any

from ba3us.report.methods_page import methods_page

if TYPE_CHECKING:
    from ba3us.report.bench_page import write_bench_page, write_database_page
    from ba3us.report.run_page import write_run_page

__all__ = ["methods_page", "write_bench_page", "write_database_page", "write_run_page"]
_FROM = {"write_run_page": "run_page", "write_bench_page": "bench_page", "write_database_page": "bench_page"}


def __getattr__(name: str) -> Any:
    """Pages of runs and benchmarks, imported when they are first asked for: the methods page needs no torch."""
    if name in _FROM:
        from importlib import import_module

        return getattr(import_module(f"ba3us.report.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
