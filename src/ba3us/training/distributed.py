"""Several processes that train on one batch: how they start, divide the samples, and combine their outputs.

Every process draws the same joint batch and sends its own part of it through the network. The outputs of all
are gathered, so that each process computes the method's losses on the joint batch, with the right normalisers
and pairs of samples, whatever the method. The losses cost little beside the network.

Gradients, for R processes: each holds the whole loss L, so it knows ∂L/∂f of its own features f. The gather
multiplies that by R on the way back. So the gradient for the network's parameters θ is R·Σ_(own samples)
∂L/∂f·∂f/∂θ, and the mean over processes that DDP takes is Σ_(all samples) ∂L/∂f·∂f/∂θ, that of the joint
batch. Parameters inside the losses (discriminators) have the same, whole gradient in every process, which the
mean leaves as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import Precision
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ba3us.errors import UserError, require
from ba3us.methods.base import DomainOutputs, Outputs, Step

if TYPE_CHECKING:
    from ba3us.training.loop import Execution


@dataclass(frozen=True)
class ProcessGroup:
    """Process number `rank` of `size` that share a run; by default a single one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """The group of processes that were started together."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def sizes(self, count: int) -> list[int]:
        """How many of `count` samples each process has: as equal as possible, but never one.

        (A single sample has no batch statistics.)
        """
        used = min(self.size, max(1, count // 2))
        return [count // used + (r < count % used) if r < used else 0 for r in range(self.size)]

    def share(self, count: int) -> slice:
        """This process's part of `count` samples."""
        sizes = self.sizes(count)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def joined(self, outputs: Outputs) -> Outputs:
        """Gather the outputs of all processes into those for the joint batch, in its order."""
        if self.size == 1:
            return outputs
        # a method may leave out samples of its part
        counts = torch.tensor([len(d.features) for d in outputs.domains], device=outputs.source.features.device)
        table = _gathered(counts[None], [1] * self.size).tolist()
        domains = []
        for domain, sizes in zip(outputs.domains, zip(*table)):

            def joint(x: Tensor, sizes: Sequence[int] = sizes) -> Tensor:
                return _Gather.apply(x, sizes, self.rank) if sum(sizes) else x

            labels = None if domain.labels is None else joint(domain.labels)
            extra = {name: joint(x) for name, x in domain.extra.items()}
            domains.append(
                DomainOutputs(joint(domain.features), joint(domain.logits), joint(domain.rows), labels, extra)
            )
        return Outputs(*domains)

    def whole(self, share: Tensor, count: int) -> Tensor:
        """Gather all `count` rows from the parts of all processes; without gradients."""
        return share if self.size == 1 else _gathered(share, self.sizes(count))

    @contextmanager
    def apart(self, step: Step) -> Iterator[None]:
        """Draw random numbers of this process only; afterwards all processes go on with the same ones."""
        if self.size == 1:
            yield
            return
        key = repr((torch.initial_seed(), step.phase, step.number, self.rank)).encode()
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int.from_bytes(hashlib.blake2b(key, digest_size=7).digest(), "big"))
            yield

    def average_statistics(self, module: nn.Module) -> None:
        """Average the running statistics of norm layers in training mode over all processes."""
        if self.size == 1:
            return
        for layer in module.modules():
            for name, buffer in layer.named_buffers(recurse=False):
                if layer.training and name.startswith("running_"):
                    distributed.all_reduce(buffer)
                    buffer /= self.size

    def same_buffers(self, module: nn.Module) -> None:
        """Copy the first process's buffers (class weights, pseudo-labels), which may differ in the last bit."""
        for buffer in module.buffers() if self.size > 1 else ():
            distributed.broadcast(buffer, 0)

    def check_same(self, what: str, values: Sequence[Any]) -> None:
        """Refuse to go on if `values` differ between processes."""
        if self.size == 1:
            return
        everyone: list[Any] = [None] * self.size
        distributed.all_gather_object(everyone, list(values))
        other = next((r for r in range(self.size) if everyone[r] != everyone[0]), 0)
        require(
            other == 0,
            f"The processes of this run differ in {what}: {everyone[0]} in the first, {everyone[other]} in "
            f"number {other}; give all of them the same command and files.",
        )

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            distributed.barrier()


def _gathered(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes; shorter parts are padded, because not every backend takes unequal ones."""
    padded = x.new_zeros((max(sizes), *x.shape[1:]))
    padded[: len(x)] = x.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Sequence[int], rank: int) -> Tensor:
        ctx.start, ctx.rows, ctx.factor = sum(sizes[:rank]), sizes[rank], len(sizes)
        return _gathered(x, sizes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.factor * grads[0][ctx.start : ctx.start + ctx.rows], None, None


# --- starting the processes -------------------------------------------------------------------------------

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
_TIMEOUT = timedelta(hours=6)  # others wait while one decodes images or writes files
_SYNC_BUFFERS = next(  # newer torch has another name for it
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)
_LOST_PEER = ("connection closed", "connection reset", "connection refused", "timed out", "broken pipe")


@dataclass(frozen=True)
class Layout:
    """The accelerator, and the number of processes on each of a number of nodes."""

    accelerator: str
    devices: int
    nodes: int

    @property
    def many(self) -> bool:
        """Whether there is more than one process."""
        return self.devices * self.nodes > 1


_launched: Layout | None = None


def layout(accelerator: str | None, devices: int | str | None, nodes: int | None) -> Layout:
    """Check the requested layout, also against torchrun where that has started the processes."""
    place, started = _accelerator(accelerator), None
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun, which ``fabric run`` uses, has started this process
        per_node, total = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        started = per_node, total // per_node
    available = torch.cuda.device_count() if place == "cuda" else 1
    wanted = _count("devices", devices, default=available if devices == "auto" else 1)
    machines = _count("nodes", nodes, default=1)
    if started:
        requested = (wanted if devices not in (None, "auto") else started[0], machines if nodes else started[1])
        require(
            requested == started,
            f"The launcher started {started[0]} processes on each of {started[1]} nodes, {requested[0]} "
            f"devices on {requested[1]} were requested: leave `devices` and `nodes` to the launcher.",
        )
        wanted, machines = started
    require(
        place != "cuda" or wanted <= available,
        f"{wanted} devices were requested, but this machine has {available}: use fewer.",
    )
    # a single process may leave the choice to Fabric
    return Layout("cpu" if place == "auto" and wanted * machines > 1 else place, wanted, machines)


def check_accelerator(name: str) -> None:
    """Refuse an unknown accelerator; whether this machine has it is checked when training starts."""
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


def start(execution: Execution) -> tuple[Fabric, ProcessGroup]:
    """The devices of a run: those of its configuration or, if that names none, those that were launched."""
    if execution.devices is None and execution.nodes is None:
        place = _launched or Layout("auto", 1, 1)
        if execution.accelerator or _launched is None:
            place = dataclasses.replace(place, accelerator=_accelerator(execution.accelerator))
    else:
        place = layout(execution.accelerator, execution.devices, execution.nodes)
    return _fabric(place, execution.precision)


def _fabric(place: Layout, precision: str) -> tuple[Fabric, ProcessGroup]:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else it prints its settings
    os.environ.pop("LT_STRATEGY", None)  # set by fabric run; the strategy is chosen here
    settings: dict[str, Any] = {"find_unused_parameters": True, _SYNC_BUFFERS: False}
    many = DDPStrategy(timeout=_TIMEOUT, **settings)
    try:
        fabric = Fabric(
            accelerator=place.accelerator,
            devices=place.devices,
            num_nodes=place.nodes,
            strategy=many if place.many else "auto",
            precision=precision,  # type: ignore[arg-type]
        )
        if place.many and "LT_CLI_USED" not in os.environ:  # fabric run has launched already
            fabric.launch()
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{place.devices} processes on each of {place.nodes} nodes can't work together "
            f"({str(error).strip().splitlines()[0]}): check the launcher's settings, or use one device."
        ) from error
    return fabric, ProcessGroup(fabric.global_rank, fabric.world_size) if place.many else ProcessGroup()


class Prepared(NamedTuple):
    """A module on its device, its optimiser, its precision (with float16's loss scale), backward and step."""

    module: nn.Module
    optimizer: Any
    precision: Precision
    backward: Callable[[Tensor], Any]
    step: Callable[[], Any]


def set_up(fabric: Fabric, module: nn.Module, optimizer: Callable[[], torch.optim.SGD]) -> Prepared:
    """Move `module` to its device and make its optimiser, wrapped by Fabric where that is needed.

    (Fabric's wrappers cost a tenth of a step on features. For one process in full precision they do nothing.)
    """
    if fabric.world_size == 1 and type(fabric.strategy.precision) is Precision:
        module, unwrapped = module.to(fabric.device), optimizer()
        return Prepared(module, unwrapped, fabric.strategy.precision, Tensor.backward, unwrapped.step)
    wrapped = fabric.setup_module(module, _reapply_compile=False)
    wrapped_optimizer: Any = fabric.setup_optimizers(optimizer())
    return Prepared(
        wrapped, wrapped_optimizer, fabric.strategy.precision, fabric.backward, wrapped_optimizer.step
    )


@contextmanager
def launched(
    accelerator: str | None = None, devices: int | str | None = None, nodes: int | None = None
) -> Iterator[ProcessGroup]:
    """Start the processes, or join those that torchrun started; runs inside the block use all of them.

    An error in one process ends all; only the process that had it first reports it.
    """
    global _launched
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view")
    process_group = ProcessGroup()
    try:
        _launched = layout(accelerator, devices, nodes)
        if _launched.many:
            process_group = _fabric(_launched, "32-true")[1]
        yield process_group
    except UserError:
        if not _reports_first(default=True):
            sys.exit(2)
        raise
    except RuntimeError as error:
        if process_group.size == 1 or not any(phrase in str(error).lower() for phrase in _LOST_PEER):
            raise
        if not _reports_first(default=False):
            sys.exit(2)
        raise UserError(
            "Another process of this run ended too early: read its error, or check whether it ran out of "
            "memory; then go on with `resume`."
        ) from error
    finally:
        _launched = None
    if process_group.size > 1:
        distributed.destroy_process_group()


def _reports_first(default: bool) -> bool:
    """Whether no other process has reported an error yet; `default` if that can't be known."""
    with suppress(RuntimeError, ValueError, AttributeError):
        if not distributed.is_initialized():  # all have the same error
            return os.environ.get("RANK", "0") == "0"
        return distributed.distributed_c10d._get_default_store().add("ba3us error reported", 1) == 1
    return default
