"""DistributedDataParallel: the module whose backward averages gradients over a group.

The forward only notes that a backward will come; the work is done by hooks on the leaves
(``reducer``) by a plan made beforehand (``buckets``).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import context, nn
from ...core.tensor import Tensor
from ...errors import AutogradError, ConfigError
from ..invariant.strategy import DEFAULT_COUNT, GlobalDeterminism, VirtualShards, check_mode
from ..state import group_or_default
from .alike import MIB, broadcast_coalesced, check_alike
from .buckets import ParamMeta, plan_buckets
from .messages import Messages
from .reducer import SYNCING, Hook, Reducer, Settings

DEFAULT_CAP_MB = 25
FIRST_CAP_MB = 1


class DistributedDataParallel(nn.Module):
    """Wrap ``module`` for data-parallel training: one replica per rank of ``process_group``.

    At construction all ranks are checked to hold the same parameters (names, shapes, types), and
    take rank 0's values of parameters and buffers. During backward gradients are averaged over the
    ranks, bucket by bucket (``bucket_cap_mb``), while the rest of backward still runs. After it
    every rank holds the same ``.grad``.

    ``find_unused_parameters``: allow parameters that a forward does not use. ``static_graph``: the
    graph is the same in each iteration; then a parameter may be used by several parts that are
    checkpointed. ``broadcast_buffers``: take rank 0's buffers before each forward.

    A gradient lies in its bucket in any case. With ``gradient_as_bucket_view=False`` that cannot be
    seen: a gradient that the program has kept is not written over when the next one comes, and a
    tensor that it has put into ``.grad`` receives the average. With True the first is not so, as in
    PyTorch. ``device_ids`` and ``output_device`` are accepted for modules on one device.

    ``deterministic="global"``: bitwise the same weights on any number of ranks that divides
    ``virtual_shards``. The program runs forward and backward ``shards.each`` times per step, with
    the batches of ``distributed.invariant.VirtualShardSampler``.

    Raises ``AutogradError`` without trainable parameters, ``CollectiveMismatch`` (on every rank)
    when the ranks hold different ones.
    """

    def __new__(
        cls, *args: Any, deterministic: str | None = None, **kwargs: Any
    ) -> DistributedDataParallel:
        chosen = cls
        if check_mode(deterministic) and cls is DistributedDataParallel:
            chosen = InvariantDataParallel
        return super().__new__(chosen)

    def __init__(
        self,
        module: nn.Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        *,
        deterministic: str | None = None,
        virtual_shards: int = DEFAULT_COUNT,
    ) -> None:
        super().__init__()
        self.virtual_shards = virtual_shards
        if device_ids is not None and len(device_ids) > 1:
            raise ConfigError(
                f"DistributedDataParallel: device_ids={list(device_ids)} was given; needed is at "
                "most one device; start one rank for each"
            )
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, device_ids, output_device
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.bucket_cap_mb = bucket_cap_mb
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.parameters_to_ignore = set(getattr(module, IGNORED, ()))
        self._build(group_or_default(process_group), init_sync)

    def _build(self, group: Any, init_sync: bool) -> None:
        """Make what belongs to this process: the group and the reducer."""
        self.__dict__["process_group"] = group
        named = self._trained()
        if not named:
            raise AutogradError(
                "DistributedDataParallel: the module has no parameter that requires grad; there is "
                "nothing to synchronise, so use the module as it is"
            )
        metas = [ParamMeta(n, tuple(p.shape), p.array.dtype) for n, p in named]
        if init_sync:
            check_alike(group, metas)
            self._sync_state()
        self._start([p for _, p in named], metas, group)

    def _caps(self) -> tuple[int, int]:
        """The bytes of a bucket, and of the one that is launched first."""
        cap_mb = DEFAULT_CAP_MB if self.bucket_cap_mb is None else self.bucket_cap_mb
        cap = int(cap_mb * MIB)
        return cap, min(cap, FIRST_CAP_MB * MIB) if self.bucket_cap_mb is None else cap

    def _start(self, params: list[Tensor], metas: list[ParamMeta], group: Any) -> None:
        """Take over what happens to gradients."""
        cap, first = self._caps()
        settings = Settings(cap, first, self.find_unused_parameters, self.gradient_as_bucket_view)
        me = weakref.ref(self)
        reducer = Reducer(
            params, metas, group, settings,
            lambda: getattr(me(), "require_backward_grad_sync", True),
            Messages(self.module, metas, group), self.static_graph,
        )  # fmt: skip
        self.__dict__["reducer"] = reducer
        self.__dict__["_end"] = weakref.finalize(self, reducer.detach)

    def _trained(self) -> list[tuple[str, Tensor]]:
        """The parameters whose gradients are averaged; a shared one once."""
        return [
            (n, p)
            for n, p in self.module.named_parameters()
            if p.requires_grad and n not in self.parameters_to_ignore
        ]

    def _buffers_to_sync(self) -> list[Tensor]:
        """Collected anew each time: programs assign buffers."""
        ignored = self.parameters_to_ignore
        return [b for n, b in self.module.named_buffers() if n not in ignored]

    def _sync_state(self) -> None:
        ignored = self.parameters_to_ignore
        params = [p for n, p in self.module.named_parameters() if n not in ignored]
        broadcast_coalesced(self.process_group, [*params, *self._buffers_to_sync()])

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: nn.Module, params_and_buffers_to_ignore: Sequence[str]
    ) -> None:
        """Before wrapping ``module``: leave these (by their full names in it) alone."""
        module.__dict__[IGNORED] = set(params_and_buffers_to_ignore)

    def _set_static_graph(self) -> None:
        """As ``static_graph=True``; before the first forward."""
        if self.reducer.steps:
            raise AutogradError(
                "DistributedDataParallel: static_graph can only be set before training starts; "
                "pass static_graph=True when the module is wrapped"
            )
        self.static_graph = self.reducer.static = True

    @property
    def _module_copies(self) -> list[nn.Module]:
        return [self.module]

    # --- copies ---------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its own reducer, over the default group."""
        left = ("process_group", "reducer", "_end")
        return {k: v for k, v in self.__dict__.items() if k not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._build(group_or_default(None), init_sync=False)

    # --- communication hooks --------------------------------------------------------------------

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Let ``hook(state, bucket)`` reduce the gradients instead of an average over all ranks.

        It gets a ``GradBucket`` whose gradients were not divided by anything, and returns a
        ``Future`` of a tensor with as many elements. Once, and before the first backward.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise ConfigError(
                "DistributedDataParallel: register_comm_hook can only be called once, and a hook "
                f"is registered already: {self.reducer.hook[0]}"
            )
        if self.reducer.steps:
            raise ConfigError(
                "DistributedDataParallel: register_comm_hook must be called before the first "
                "backward"
            )
        self.reducer.register_hook(state, hook)

    # --- iterations -----------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients locally: forward *and* backward inside the block; the next ones
        outside average what has accumulated."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        reducer = self.reducer
        recording = context.thread.grad_enabled
        if recording and reducer.phase == SYNCING and context.thread.walk is None:
            raise reducer.messages.broken_off(reducer.next, len(reducer.buckets))
        sync = recording and self.require_backward_grad_sync
        if sync and reducer.arrivals is not None:
            reducer.rebuild()
        if self.broadcast_buffers and self.require_forward_param_sync:
            self._sync_buffers()
        outputs = self.module(*inputs, **kwargs)
        if sync:
            reducer.prepare(outputs)
        if self.require_forward_param_sync is not sync:
            self.require_forward_param_sync = sync
        return outputs

    def _sync_buffers(self) -> None:
        if self.process_group.size > 1:
            buffers = self._buffers_to_sync()
            if buffers:
                broadcast_coalesced(self.process_group, buffers)

    def close(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.reducer.detach()


class InvariantDataParallel(DistributedDataParallel):
    """``DistributedDataParallel(..., deterministic="global")``."""

    invariant: GlobalDeterminism

    def _start(self, params: list[Tensor], metas: list[ParamMeta], group: Any) -> None:
        plan = plan_buckets(metas, *self._caps())
        invariant = GlobalDeterminism(self.module, params, plan, group, self.virtual_shards)
        self.__dict__["invariant"] = invariant
        self.__dict__["_end"] = weakref.finalize(self, invariant.detach)

    @property
    def shards(self) -> VirtualShards:
        """The virtual shards of this rank, and how far the run is."""
        return self.invariant.shards

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "invariant"}

    def _set_static_graph(self) -> None:
        """Nothing depends on it: what is sent is decided at the end of a step."""

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        raise ConfigError(
            f"DistributedDataParallel: the communication hook {hook!r} was given with "
            'deterministic="global", which needs the exact sum over all virtual shards; leave one '
            "of them out"
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.invariant.forward(self.module, inputs, kwargs)

    def close(self) -> None:
        self.invariant.detach()


IGNORED = "_ddp_params_and_buffers_to_ignore"
