"""Benchmarks: protocols as data, methods × tasks × seeds, results that survive an interruption, tables."""

from ba3us.bench.database import Database
from ba3us.bench.jobs import MethodRow
from ba3us.bench.protocol import Protocol, read_protocol, shipped
from ba3us.bench.study import Study, check, count_failed, page, prepare, run, study_tables
from ba3us.bench.tables import WRITERS, chosen_format, ranked

__all__ = [
    "WRITERS",
    "Database",
    "MethodRow",
    "Protocol",
    "Study",
    "check",
    "chosen_format",
    "count_failed",
    "page",
    "prepare",
    "ranked",
    "read_protocol",
    "run",
    "shipped",
    "study_tables",
]
