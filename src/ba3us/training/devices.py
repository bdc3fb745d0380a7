"""Starting the processes of a run, one per device: by torchrun, by ``fabric run``, or by ourselves."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import Precision
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ba3us.errors import UserError, require
from ba3us.training.execution import Execution
from ba3us.training.team import Team

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
_PATIENCE = timedelta(hours=6)  # others wait while one decodes images or writes files
_KEEP_BUFFERS = next(  # torch has a new name for it
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
_LOST = ("connection closed", "connection reset", "connection refused", "timed out", "broken pipe")  # by a peer


@dataclass(frozen=True)
class Layout:
    """Processes on each of some nodes, and what they compute on."""

    accelerator: str
    devices: int
    nodes: int

    @property
    def many(self) -> bool:
        """Whether there is more than one process."""
        return self.devices * self.nodes > 1


_launched: Layout | None = None


def layout(accelerator: str | None, devices: int | str | None, nodes: int | None) -> Layout:
    """What is asked for, checked, and in agreement with torchrun where that has started the processes."""
    place, started = _accelerator(accelerator), _started()
    there = torch.cuda.device_count() if place == "cuda" else 1
    wanted = _count("devices", devices, default=there if devices == "auto" else 1)
    machines = _count("nodes", nodes, default=1)
    if started:
        asked = (wanted if devices not in (None, "auto") else started[0], machines if nodes else started[1])
        require(
            asked == started,
            f"The launcher started {started[0]} processes on each of {started[1]} nodes, {asked[0]} devices "
            f"on {asked[1]} are asked for: leave --devices and --nodes to the launcher.",
        )
        wanted, machines = started
    require(
        place != "cuda" or wanted <= there,
        f"{wanted} devices are asked for, but this machine has {there}: use fewer.",
    )
    # one process may leave the choice to Fabric
    return Layout("cpu" if place == "auto" and wanted * machines > 1 else place, wanted, machines)


def check_accelerator(name: str) -> None:
    """Refuse one that there is not; whether it is here is another question."""
    require(name in ACCELERATORS, f"Unknown accelerator {name!r}: choose one of {', '.join(ACCELERATORS)}.")


def _accelerator(name: str | None) -> str:
    place = name or "auto"
    check_accelerator(place)
    require(
        place != "cuda" or torch.cuda.is_available(),
        "The accelerator 'cuda' can't be used here: choose cpu, or auto.",
    )
    return "cuda" if place == "auto" and torch.cuda.is_available() else place


def _count(name: str, value: int | str | None, default: int) -> int:
    if value in (None, "auto"):
        return default
    number = int(value) if str(value).isdecimal() else 0  # type: ignore[arg-type]
    require(number >= 1, f"The number of {name} is {value!r}: give 1 or more.")
    return number


def _started() -> tuple[int, int] | None:
    """Processes per node and nodes, if torchrun (which ``fabric run`` uses) has started this process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return here, everywhere // here


def start(execution: Execution) -> tuple[Fabric, Team]:
    """What a run computes on, as its configuration says or, where it does not, as has been launched."""
    if execution.devices is None and execution.nodes is None:
        place = _launched or Layout("auto", 1, 1)
        if execution.accelerator or _launched is None:
            place = dataclasses.replace(place, accelerator=_accelerator(execution.accelerator))
    else:
        place = layout(execution.accelerator, execution.devices, execution.nodes)
    return _fabric(place, execution.precision)


def _fabric(place: Layout, precision: str) -> tuple[Fabric, Team]:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else it says what was asked of it
    os.environ.pop("LT_STRATEGY", None)  # fabric run's; there is one for many processes, with these settings
    settings: dict[str, Any] = {"find_unused_parameters": True, _KEEP_BUFFERS: False}
    many = DDPStrategy(timeout=_PATIENCE, **settings)
    try:
        fabric = Fabric(
            accelerator=place.accelerator,
            devices=place.devices,
            num_nodes=place.nodes,
            strategy=many if place.many else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
        if place.many and "LT_CLI_USED" not in os.environ:  # under fabric run, making it has done that
            fabric.launch()
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{place.devices} processes on each of {place.nodes} nodes can't work together "
            f"({str(error).strip().splitlines()[0]}): check the launcher's settings, or use one device."
        ) from error
    return fabric, Team(fabric.global_rank, fabric.world_size) if place.many else Team()


class Prepared(NamedTuple):
    """A module on its device, its optimiser, its precision (with the scale of float16), and how to go on."""

    module: nn.Module
    optimizer: Any
    precision: Precision
    backward: Callable[[Tensor], Any]
    step: Callable[[], Any]


def set_up(fabric: Fabric, module: nn.Module, optimizer: Callable[[], torch.optim.SGD]) -> Prepared:
    """`module` and an `optimizer` of its parameters, wrapped where Fabric has something to add.

    (Its wrappers cost a tenth of a step on features, and for one process in full precision they do nothing.)
    """
    if fabric.world_size == 1 and type(fabric.strategy.precision) is Precision:
        module, plain = module.to(fabric.device), optimizer()
        return Prepared(module, plain, fabric.strategy.precision, Tensor.backward, plain.step)
    wrapped = fabric.setup_module(module, _reapply_compile=False)
    stepper: Any = fabric.setup_optimizers(optimizer())
    return Prepared(wrapped, stepper, fabric.strategy.precision, fabric.backward, stepper.step)


@contextmanager
def launched(
    accelerator: str | None = None, devices: int | str | None = None, nodes: int | None = None
) -> Iterator[Team]:
    """Start the processes, or join those that torchrun started; runs inside are then spread over all of them.

    An error in any of them ends all, with one sentence from the process that had it first.
    """
    global _launched
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view")
    team = Team()
    try:
        _launched = layout(accelerator, devices, nodes)
        if _launched.many:
            team = _fabric(_launched, "32-true")[1]
        yield team
    except UserError:
        if not _speaks_first(otherwise=True):
            sys.exit(2)
        raise
    except RuntimeError as error:
        if team.size == 1 or not any(sign in str(error).lower() for sign in _LOST):
            raise
        if not _speaks_first(otherwise=False):
            sys.exit(2)
        raise UserError(
            "Another process of this run has ended too early: see what it said, or whether it was killed for "
            "want of memory; then go on with --resume."
        ) from error
    finally:
        _launched = None
    if team.size > 1:
        distributed.destroy_process_group()


def _speaks_first(otherwise: bool) -> bool:
    """Whether no other process has said yet what went wrong; `otherwise` if that can't be known."""
    with suppress(RuntimeError, ValueError, AttributeError):
        if not distributed.is_initialized():  # all of them have the same to say
            return os.environ.get("RANK", "0") == "0"
        return distributed.distributed_c10d._get_default_store().add("ba3us spoke", 1) == 1
    return otherwise
