"""Benchmarks: protocols as data, methods × tasks × seeds, results that survive an interruption, tables."""

from ba3us.bench.protocol import Protocol, Task, read_protocol
from ba3us.bench.runner import Job, chosen_methods, jobs, run
from ba3us.bench.tables import markdown, mistakes, overview, ranked, summarise
from ba3us.methods.options import parse_options as parse_settings

__all__ = [
    "Job",
    "Protocol",
    "Task",
    "chosen_methods",
    "jobs",
    "markdown",
    "mistakes",
    "overview",
    "parse_settings",
    "ranked",
    "read_protocol",
    "run",
    "summarise",
]
