"""Benchmarks: protocols as data, methods × tasks × seeds, results that survive an interruption, tables."""

from ba3us.bench.protocol import Protocol, Task, read_protocol
from ba3us.bench.runner import Job, chosen_methods, jobs, parse_settings, run
from ba3us.bench.tables import markdown, overview, summarise

__all__ = [
    "Job",
    "Protocol",
    "Task",
    "chosen_methods",
    "jobs",
    "markdown",
    "overview",
    "parse_settings",
    "read_protocol",
    "run",
    "summarise",
]
