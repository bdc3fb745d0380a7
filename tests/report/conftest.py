"""Runs and pages that several files of tests look at; they are made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_toys import make_run, taken, write_data

from arrays_toys import edit_results
from ba3us.report import write_run_page


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Data with nasty names, and a run on it; not to be written to."""
    folder = tmp_path_factory.mktemp("report")
    write_data(folder)
    make_run(folder)
    return folder


@pytest.fixture(scope="session")
def nasty_page(folder) -> Path:
    """With labels, intervals, a leaderboard and a verdict: everything that a page can hold."""
    run = folder / "full"
    os.rename(make_run(folder, "full.made"), run)
    header, _, presence = (run / "presence.csv").read_text(encoding="utf-8").partition("\n")
    (run / "presence.csv").write_text(
        f"{header}\n" + presence.replace(",present", ",uncertain", 1), encoding="utf-8"
    )
    (run / "leaderboard.csv").write_text(
        'run,score,chosen\n"<i>a</i>",0.123456789,no\nb,1,yes\n', encoding="utf-8"
    )
    reasons = ["One <em>reason</em>.", "Another."]
    edit_results(
        run,
        verdict={
            "outcome": "likely helped",
            "model_used": "adapted",
            "reasons": reasons,
            "figures": {"gain_points": 3.25},
        },
    )
    return write_run_page(run, labels=folder / "t.npz", out=folder / "full.html")


@pytest.fixture(scope="session")
def nasty(nasty_page):
    return taken(nasty_page)
