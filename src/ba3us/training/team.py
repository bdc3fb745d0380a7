"""Several processes that work on one batch: who has which rows, and how their outputs come together.

Every process draws the same joint batch and sends its own share of the rows through the network. The outputs
of all are gathered, so that each process computes the method's losses on the joint batch: with the right
normalisers and pairs of rows, whatever the method. The losses cost little beside the network.

Gradients, for R processes: each holds the whole loss L, so it knows ∂L/∂f of its own rows f; the gather hands R
times that back. What follows from it for the network's parameters θ is R·Σ_(own rows) ∂L/∂f·∂f/∂θ, and the mean
over processes that DDP takes is Σ_(all rows) ∂L/∂f·∂f/∂θ, that of the joint batch. Parameters inside the losses
(discriminators) have the same, whole gradient in every process, which the mean leaves as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn

from ba3us.errors import require
from ba3us.methods.base import DomainOutputs, Outputs, Step


@dataclass(frozen=True)
class Team:
    """Process number `rank` of `size`; alone unless told otherwise."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Team:
        """The processes that have been started together."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0

    # --- rows ---------------------------------------------------------------------------------------------

    def sizes(self, count: int) -> list[int]:
        """How many of `count` rows each process has: as equal as can be, but no row on its own.

        (One row has no batch statistics.)
        """
        busy = min(self.size, max(1, count // 2))
        return [count // busy + (r < count % busy) if r < busy else 0 for r in range(self.size)]

    def share(self, count: int) -> slice:
        """This process's rows of `count`."""
        sizes = self.sizes(count)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def check_batch(self, batch_size: int) -> None:
        """Every process must have rows."""
        require(
            self.size == 1 or batch_size >= 2 * self.size,
            f"The batch_size is {batch_size} for {self.size} processes, which share it: make it at least "
            f"{2 * self.size}, or use fewer devices.",
        )

    # --- coming together ----------------------------------------------------------------------------------

    def joined(self, outputs: Outputs) -> Outputs:
        """The outputs for the joint batch, in its order, from those for everybody's share."""
        if self.size == 1:
            return outputs
        domains, device = outputs.domains, outputs.source.features.device
        # a method may leave out rows of its share
        mine = torch.tensor([len(d.features) for d in domains], device=device)
        table = _gathered(mine[None], [1] * self.size).tolist()
        return Outputs(*(self._joined(d, sizes) for d, sizes in zip(domains, zip(*table))))

    def _joined(self, domain: DomainOutputs, sizes: Sequence[int]) -> DomainOutputs:
        if not sum(sizes):
            return domain

        def whole(x: Tensor) -> Tensor:
            return _Gather.apply(x, sizes, self.rank)

        return DomainOutputs(
            whole(domain.features),
            whole(domain.logits),
            whole(domain.rows),
            None if domain.labels is None else whole(domain.labels),
            {name: whole(x) for name, x in domain.extra.items()},
        )

    def whole(self, share: Tensor, count: int) -> Tensor:
        """All `count` rows, from everybody's share; without gradients."""
        return share if self.size == 1 else _gathered(share, self.sizes(count))

    @contextmanager
    def apart(self, step: Step) -> Iterator[None]:
        """Random numbers of this process's own; those that follow are the same in all, as if none was drawn."""
        if self.size == 1:
            yield
            return
        own = repr((torch.initial_seed(), step.phase, step.number, self.rank)).encode()
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int.from_bytes(hashlib.blake2b(own, digest_size=7).digest(), "big"))
            yield

    # --- staying together ---------------------------------------------------------------------------------

    def average_statistics(self, module: nn.Module) -> None:
        """Let running statistics of norm layers in training mode be the mean of what all processes saw."""
        if self.size == 1:
            return
        running = [
            buffer
            for layer in module.modules()
            for name, buffer in layer.named_buffers(recurse=False)
            if layer.training and name.startswith("running_")
        ]
        if running:
            flat = torch.cat([buffer.flatten() for buffer in running])
            distributed.all_reduce(flat)
            flat /= self.size
            for buffer, mean in zip(running, flat.split([b.numel() for b in running])):
                buffer.copy_(mean.view_as(buffer))

    def same_buffers(self, module: nn.Module) -> None:
        """Take the first process's buffers (class weights, pseudo-labels), equal but for the last bit."""
        for buffer in module.buffers() if self.size > 1 else ():
            distributed.broadcast(buffer, 0)

    def check_same(self, what: str, values: Sequence[Any]) -> None:
        """All processes must have started from the same."""
        if self.size == 1:
            return
        everybody: list[Any] = [None] * self.size
        distributed.all_gather_object(everybody, list(values))
        other = next((r for r in range(self.size) if everybody[r] != everybody[0]), 0)
        require(
            other == 0,
            f"The processes of this run differ in {what}: {everybody[0]} in the first, {everybody[other]} in "
            f"number {other}; give all of them the same command and files.",
        )

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            distributed.barrier()


def _gathered(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes; shorter shares travel padded, because not every backend takes unequal ones."""
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
