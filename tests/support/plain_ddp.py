"""Data parallelism in fifteen lines: the specification that the bucketed one equals."""

from __future__ import annotations

from disttrain import core, nn
from disttrain import distributed as dist


class PlainDDP:
    """All-reduce every gradient after backward, and divide by the number of ranks."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), 0)

    def __call__(self, *args):
        return self.module(*args)

    def average(self) -> None:
        for p in self.module.parameters():
            if p.requires_grad:
                p.grad = core.wrap(p.array * 0) if p.grad is None else p.grad
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
