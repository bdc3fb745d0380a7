"""Options and fixtures shared by the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("repeatable")

# they start teams of processes, with ports, nodes and kills: under ``-n``, one after another
TAKE_TURNS = {"test_devices.py", "test_bench_cluster.py", "test_bench_local.py"}

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores; so do the programs that their tests start
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Layers and tensors that a test draws without a generator are the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches go into a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BA3US_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``-n``, a file's tests stay with one worker, which makes once what they share."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return "several processes" if Path(file).name in TAKE_TURNS else file

    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    here = Path(__file__).parent / "golden"
    parser.addoption("--golden", type=Path, default=here, help="folder of golden .npz files to reproduce")


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Load a golden file by name: ``golden("ba3us_aus")["c0/loss"]``."""
    folder: Path = request.config.getoption("--golden")

    def load(name: str) -> dict[str, np.ndarray]:
        path = folder / f"{name}.npz"
        if not path.is_file():
            pytest.skip(f"no {name}.npz in {folder}")
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    return load


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder ``shared`` beside the project or beside its worktrees, or what BA3US_SHARED names."""
    beside = [folder / "shared" for folder in Path(__file__).resolve().parents[2:4]]
    named = os.environ.get("BA3US_SHARED")
    for folder in [Path(named)] if named else beside:
        if folder.is_dir():
            return folder
    pytest.skip("the folder ../shared is not here, and BA3US_SHARED names no other")


@pytest.fixture(scope="session")
def photos(shared: Path) -> Path:
    """The folder of real photos, if it is there."""
    if not (shared / "data" / "office_caltech10").is_dir():
        pytest.skip(f"there are no real photos in {shared / 'data'}")
    return shared / "data"


@pytest.fixture
def float64():
    """New tensors and modules are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
