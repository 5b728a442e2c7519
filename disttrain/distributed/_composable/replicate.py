"""Data-parallel training of a module that stays what it is: DDP without a wrapper."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.types.device import device as device_type
from ...errors import ConfigError, DeviceError
from ...nn import Module
from ..ddp import DistributedDataParallel
from ..ddp.module import IGNORED
from ..fsdp.module import SLOT as SHARDED
from .contract import contract


class _Inside(Module):
    """The module as DDP sees it: its names, and the forward that it had."""

    def __init__(self, module: Module, forward: Callable, ignored: set[str]) -> None:
        super().__init__()
        self.__dict__.update(inner=weakref.ref(module), run=forward)
        self.__dict__[IGNORED] = ignored

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.inner(), *args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator:
        return self.inner().named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator:
        return self.inner().named_buffers(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator:
        return self.inner().named_modules(*args, **kwargs)


class _ReplicateState:
    """What is kept of a replicated module. DDP is built at the first forward, so that the module
    may still change, and a process group need not be there, before it."""

    def __init__(self) -> None:
        self._ddp: DistributedDataParallel | None = None
        self._ddp_weakref: Any = None
        self._no_sync = False
        self._comm_hook_args: list[tuple[tuple, dict]] = []
        self._forward: Callable | None = None
        self._ignored: set[Module] = set()
        self._kwargs: dict[str, Any] = {}

    def ddp(self, module: Module) -> DistributedDataParallel:
        """The wrapper behind the module."""
        if self._ddp is None:
            inside = _Inside(module, self._forward, _left_out(module, self._ignored))  # type: ignore[arg-type]
            made = self._ddp = DistributedDataParallel(inside, **self._kwargs)
            self._ddp_weakref = weakref.ref(made)
            for args, kwargs in self._comm_hook_args:
                made.register_comm_hook(*args, **kwargs)
            self._comm_hook_args.clear()
        return self._ddp


def _left_out(module: Module, ignored: set[Module]) -> set[str]:
    """The names of parameters and buffers below ignored modules, and of those that are sharded."""
    out: set[str] = set()
    for prefix, m in module.named_modules():
        if m in ignored or SHARDED in m.__dict__:
            dot = f"{prefix}." if prefix else ""
            out |= {dot + n for n, _ in m.named_parameters()}
            out |= {dot + n for n, _ in m.named_buffers()}
    return out


class DDP:
    """The methods that a replicated module has beside its own."""

    __lent__ = ("weight",)

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        """Code that makes another one of ``type(module)`` gets one of the original class."""
        original = cls.__mro__[2]
        return original.__new__(original, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = replicate.state(self)
        ddp = state.ddp(self)
        ddp.require_backward_grad_sync = not state._no_sync
        return ddp.forward(*args, **kwargs)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether the next forwards and their backwards average gradients, or accumulate them."""
        replicate.state(self)._no_sync = not requires_gradient_sync

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As that of ``DistributedDataParallel``: forwards and backwards inside accumulate."""
        state = replicate.state(self)
        before, state._no_sync = state._no_sync, True
        try:
            with state.ddp(self).no_sync():
                yield
        finally:
            state._no_sync = before

    @contextmanager
    def weighted(self, count: float, loss: str = "mean") -> Iterator[None]:
        """As ``weight`` of ``DistributedDataParallel``."""
        with replicate.state(self).ddp(self).weight(count, loss):
            yield

    def __getattr__(self, name: str) -> Any:
        """``weight`` is ``weighted`` where the module has nothing of that name."""
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name != "weight":
                raise
        return self.weighted

    @contextmanager
    def _weighed(self, given: tuple[float, float]) -> Iterator[None]:
        with replicate.state(self).ddp(self)._weighed(given):
            yield

    def prepare_backward(self) -> None:
        """As that of ``DistributedDataParallel``: the next backward averages gradients."""
        replicate.state(self).ddp(self).prepare_backward()

    def register_comm_hook(self, *args: Any, **kwargs: object) -> None:
        """As that of ``DistributedDataParallel``; before the first backward."""
        state = replicate.state(self)
        if state._ddp is None:
            state._comm_hook_args.append((args, kwargs))
        else:
            state._ddp.register_comm_hook(*args, **kwargs)

    def __deepcopy__(self, memo: dict) -> Any:
        raise ConfigError(
            "DDP does not support deepcopy. Please use state dict for serialization: copy the "
            "module before replicate(), or load its state_dict() into another one"
        )


@contract(state_cls=_ReplicateState)
def replicate(
    module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: object
) -> Module:
    """Train ``module`` data-parallel, in place: gradients are averaged as by
    ``DistributedDataParallel``, whose settings ``kwargs`` are, and all names stay.

    ``ignored_modules``: left alone, with all below them; as are parts under ``fully_shard``. The
    class of the module becomes a subclass of its own with ``set_requires_gradient_sync`` and
    ``register_comm_hook``. ``replicate.state(module)`` keeps what belongs to it.
    """
    device = kwargs.pop("device_id", None)
    if device is not None and not isinstance(device, (int, device_type)):
        raise DeviceError(
            f"replicate: Expected device_id to be int or torch.device, but got {type(device)}"
        )
    if SHARDED in module.__dict__:
        raise ConfigError(
            "Cannot apply `replicate()` on a Module already managed by `fully_shard`; give "
            "fully_shard a two-dimensional mesh for replicas of shards"
        )
    state = replicate.state(module)
    own = module.__dict__.pop("forward", None)  # one that a program has put there
    cls = type(module)
    state._forward = cls.forward if own is None else lambda _, *a, **k: own(*a, **k)
    state._ignored, state._kwargs = set(ignored_modules or ()), kwargs
    module.__class__ = type(f"DDP{cls.__name__}", (DDP, cls), {})
    return module


__all__ = ["replicate"]
