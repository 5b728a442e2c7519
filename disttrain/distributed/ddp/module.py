"""DistributedDataParallel: the module whose backward averages gradients over a group.

The forward only notes that a backward will come; the work is done by hooks on the leaves
(``reducer``) by a plan made beforehand (``buckets``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

from ... import context, nn
from ...core.grad_mode import no_grad
from ...core.tensor import Tensor
from ...core.types.dtypes import numpy_type
from ...errors import AutogradError, ConfigError
from ..collectives.coalesced import broadcast_coalesced
from ..collectives.nested import moved
from ..groups.process_group import ProcessGroup
from ..groups.state import group_or_default
from ..invariant.strategy import DEFAULT_COUNT, GlobalDeterminism, VirtualShards, check_mode
from ..invariant.weights import checked
from ..join import Join, Joinable, JoinHook
from . import in_backward
from .agreement import check_alike
from .delayed import Delayed, check_arguments, name_of
from .devices import input_device
from .effects import MOVING, after, before
from .frozen import Frozen
from .joining import ACTIVE, BUFFERS, SYNC, Shadow, announce, source
from .reducer.buckets import ParamMeta, last_first, plan_buckets
from .reducer.caps import BucketCaps
from .reducer.dtensor_params import part_of, taking_parts
from .reducer.messages import Messages
from .reducer.mixed_precision import LowPrecision, MixedPrecision, cast_buffers, is_floating
from .reducer.reducer import Hook, Reducer, Settings
from .reducer.row_sums import candidates
from .reducer.sparse import sparse_tables
from .reducer.stores import SYNCING
from .report import logging_data, text

__outward__ = ()  # what reaches other ranks is done by effects, and by other files


class BufferCommHookLocation(Enum):
    """When a hook for buffers runs."""

    PRE_FORWARD = auto()
    POST_FORWARD = auto()


class DistributedDataParallel(nn.Module, Joinable):
    """Wrap ``module`` for data-parallel training: one replica per rank of ``process_group``.

    At construction all ranks are checked to hold the same parameters (names, shapes, types), and
    take rank 0's values of parameters and buffers (``init_sync``). During backward gradients are
    averaged over the ranks, bucket by bucket (``bucket_cap_mb``), while the rest of backward still
    runs. After it every rank holds the same ``.grad``.

    ``find_unused_parameters``: allow parameters that a forward does not use. ``static_graph``: the
    graph is the same in each iteration; then a parameter may be used by several parts that are
    checkpointed. ``forward_sync_buffers``: take rank 0's buffers before each forward, and the last
    rank's at the end of ``join``. ``broadcast_buffers=False``, its older name, leaves them alone at
    construction, too.

    A gradient lies in its bucket in any case. With ``gradient_as_bucket_view=False`` that cannot be
    seen: a gradient that the program has kept is not written over when the next one comes, and a
    tensor that it has put into ``.grad`` receives the average. With True the first is not so, as in
    PyTorch.

    ``bucket_cap_mb_list``: a limit for each bucket. ``delay_all_reduce_named_params``: (name,
    parameter) pairs whose gradients are averaged in one go, when ``param_to_hook_all_reduce`` gets
    its own. ``mixed_precision``: a ``MixedPrecision``. ``device_mesh``: a mesh of one axis,
    in place of a group. ``device_ids``: the device of the module, to which inputs are moved before
    each forward (None: they stay where they are). ``dim``, ``check_reduction``,
    ``batched_grad_copy`` and ``skip_all_reduce_unused_params`` change no result in PyTorch, and
    nothing here.

    ``deterministic="global"``: bitwise the same weights on any number of ranks that divides
    ``virtual_shards``. The program runs forward and backward ``shards.each`` times per step, with
    the batches of ``distributed.invariant.VirtualShardSampler``.

    Raises ``AutogradError`` without trainable parameters, ``CollectiveMismatch`` (on every rank)
    when the ranks hold different ones.
    """

    __moving__ = MOVING

    def __new__(
        cls, *args: object, deterministic: str | None = None, **kwargs: object
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
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Sequence[tuple[str, Tensor]] | None = None,
        param_to_hook_all_reduce: Tensor | None = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
        *,
        deterministic: str | None = None,
        virtual_shards: int = DEFAULT_COUNT,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self.virtual_shards = virtual_shards
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"DistributedDataParallel: {type(module).__name__} was given; needed is a module"
            )
        check_arguments(
            (delay_all_reduce_named_params, param_to_hook_all_reduce), (process_group, device_mesh)
        )
        self._inputs_to = input_device(list(module.parameters()), device_ids, output_device)
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, device_ids, output_device
        older = broadcast_buffers is None or broadcast_buffers
        self.forward_sync_buffers = older if forward_sync_buffers is None else forward_sync_buffers
        first = (forward_sync_buffers is not None or older,) if init_sync else ()
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.bucket_caps = BucketCaps.create(bucket_cap_mb, bucket_cap_mb_list)
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.mixed_precision = mixed_precision
        self.parameters_to_ignore = set(getattr(module, IGNORED, ()))
        late = list(delay_all_reduce_named_params or ())
        self._late = ([n for n, _ in late], name_of(module, param_to_hook_all_reduce))
        group = device_mesh.get_group() if process_group is None and device_mesh else process_group
        self._build(group_or_default(group), first)

    def _build(self, group: ProcessGroup, first: tuple[bool, ...]) -> None:
        """Make what belongs to this process: the group and the reducer. ``first``: whether rank 0's
        buffers are taken with its parameters; empty for neither."""
        self.__dict__["process_group"] = group
        named = self._trained()
        if not named and not self._late[0]:
            raise AutogradError(
                "DistributedDataParallel: the module has no parameter that requires grad; there is "
                "nothing to synchronise, so use the module as it is"
            )
        types = self.mixed_precision or MixedPrecision()
        kind = numpy_type(types.reduce_dtype) or numpy_type(types.param_dtype)
        metas = [
            ParamMeta(n, tuple(p.shape), kind if kind and is_floating(p) else p.array.dtype)
            for n, p in named
        ]
        if first:
            check_alike(group, metas)
            broadcast_coalesced(group, self._state(*first))
        cast_buffers(self._buffers_to_sync(), numpy_type(types.buffer_dtype))
        params = [p for _, p in named]
        self._start(params, metas, group)
        self.__dict__["_frozen"] = Frozen(
            self._frozen_now(),
            f"DistributedDataParallel on rank {group.ranks[group.rank]}",
            self._thawed,
        )
        if in_backward.take_over(params):
            self.register_comm_hook(group, in_backward.hook)

    def _sync_wanted(self) -> Callable[[], bool]:
        """Asks this wrapper, without keeping it alive."""
        me = weakref.ref(self)
        return lambda: getattr(me(), "require_backward_grad_sync", True)

    def _start(self, params: list[Tensor], metas: list[ParamMeta], group: ProcessGroup) -> None:
        """Take over what happens to gradients."""
        settings = Settings(
            self.bucket_caps, self.find_unused_parameters, self.gradient_as_bucket_view
        )
        wanted, types = self._sync_wanted(), self.mixed_precision
        low = None if types is None else LowPrecision(
            self._params_to_sync(), numpy_type(types.param_dtype)
        )  # fmt: skip
        reducer = Reducer(
            params, metas, group, settings, wanted, Messages(self.module, metas, group),
            self.static_graph, low, candidates(self.module, params),
            sparse_tables(self.module, params),
        )  # fmt: skip
        self.__dict__["delayed"] = None
        late, trigger = self._late
        if late:
            named = dict(self.module.named_parameters())
            self.__dict__["delayed"] = Delayed(
                [named[n] for n in late], named[trigger], group, wanted
            )
        self.__dict__["reducer"] = reducer
        self.__dict__["_end"] = end = weakref.finalize(self, reducer.detach)
        end.atexit = False

    def _trained(self) -> list[tuple[str, Tensor]]:
        """The parameters whose gradients are averaged; a shared one once."""
        return [
            (n, part_of(p))
            for n, p in self.module.named_parameters()
            if p.requires_grad and n not in self.parameters_to_ignore and n not in self._late[0]
        ]

    def _frozen_now(self) -> list[tuple[str, Tensor]]:
        ignored = (*self.parameters_to_ignore, *self._late[0])
        named = self.module.named_parameters()
        return [(n, part_of(p)) for n, p in named if not p.requires_grad and n not in ignored]

    def _buffers_to_sync(self) -> list[Tensor]:
        """Collected anew each time: programs assign buffers."""
        ignored = self.parameters_to_ignore
        return [b for n, b in self.module.named_buffers() if n not in ignored]

    def _state(self, buffers: bool) -> list[Tensor]:
        """What is the same on all ranks."""
        kept = self._buffers_to_sync() if buffers else ()
        return [part_of(t) for t in (*self._params_to_sync(), *kept)]

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of ``forward_sync_buffers``."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def _params_to_sync(self) -> list[Tensor]:
        ignored = self.parameters_to_ignore
        return [p for n, p in self.module.named_parameters() if n not in ignored]

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
        self.static_graph = True
        self.reducer.set_static()

    @property
    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward takes rank 0's buffers."""
        return bool(
            self.require_forward_param_sync
            and self.forward_sync_buffers
            and self._buffers_to_sync()
        )

    @property
    def _module_copies(self) -> list[nn.Module]:
        return [self.module]

    # --- copies ---------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its own reducer, over the default group."""
        left = ("process_group", "reducer", "delayed", "_end", "_frozen")
        return {k: v for k, v in self.__dict__.items() if k not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._build(group_or_default(None), ())

    # --- communication hooks --------------------------------------------------------------------

    def register_comm_hook(self, state: object, hook: Hook) -> None:
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

    @contextmanager
    def weight(self, count: float, loss: str = "mean") -> Iterator[None]:
        """The loss whose backward runs in the block stands for ``count`` samples (or tokens).

        Gradients become the mean over all samples of all ranks, also where ranks, or the parts of
        an accumulated batch (``no_sync``), have different numbers of them. ``loss`` says whether
        it is a "mean" or a "sum" over them. Use it on every rank and for every backward that is
        averaged together; until then, ``.grad`` holds sums. 0 stands for nothing: its gradients do
        not count.
        """
        with self._weighed(checked("DistributedDataParallel.weight", count, loss)):
            yield

    weighted = weight  # as it is called where modules have parameters of that name

    @contextmanager
    def _weighed(self, given: tuple[float, float]) -> Iterator[None]:
        """Backwards in the block have the weight ``given``: (count, factor of gradients)."""
        weights = self._weights()
        before = weights.weight
        weights.set_weight(given)
        try:
            yield
        finally:
            weights.set_weight(before)

    def _weights(self) -> Any:
        """What takes the weights of backwards."""
        return self.reducer.scaling

    def prepare_backward(self) -> None:
        """Let the next backward synchronise, though its forward ran inside ``no_sync()``: for the
        last of several micro-batches whose forwards and backwards alternate. On every rank."""
        self.reducer.rebuild()
        self.reducer.prepare(())
        self.require_forward_param_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        reducer = self.reducer
        if self._inputs_to is not None:
            inputs, kwargs = moved((inputs, kwargs), self._inputs_to)
        recording = context.thread.grad_enabled
        sync = recording and self.require_backward_grad_sync
        before(self, recording, sync)
        if reducer.low is None:
            outputs = self.module(*inputs, **kwargs)
        else:
            outputs = self._forward_low(reducer.low, recording, inputs, kwargs)
        after(self, sync, outputs)
        return outputs

    def _before_forward(self, recording: bool, sync: bool) -> None:
        reducer = self.reducer
        if not reducer.memory.on_host:
            reducer.hear_late()
        if recording and reducer.phase >= SYNCING and reducer.broken_off:
            raise reducer.messages.broken_off(reducer.next, len(reducer.buckets))
        if sync and self._frozen.named:
            self._frozen.look()
        if self._join_config.enable:
            self._before_joined(sync)
        else:
            if sync and reducer.arrivals is not None:
                reducer.rebuild()
            if self.forward_sync_buffers and self.require_forward_param_sync:
                self._sync_buffers(0)
        reducer.stats.forward_at = reducer.stats.now()

    def _after_forward(self, sync: bool, outputs: object) -> None:
        if sync:
            self.reducer.prepare(outputs)
        if "buffer_hook" in self.__dict__ and self.require_forward_param_sync:
            self._ask_buffer_hook(BufferCommHookLocation.POST_FORWARD)
        if self.delayed is not None:
            self.delayed.clear()
        if self.require_forward_param_sync is not sync:
            self.require_forward_param_sync = sync

    def _forward_low(self, low: LowPrecision, keep: bool, inputs: tuple, kwargs: dict) -> Any:
        """In mixed precision. ``keep``: a backward will need the parameters as they are now."""
        low.lower()
        try:
            return self.module(*low.cast(inputs), **low.cast(kwargs))
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                low.back()

    def _before_joined(self, sync: bool) -> None:
        """Inside a join block: tell ranks that have no more input what this iteration does."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
        buffers = self.forward_sync_buffers and self.require_forward_param_sync
        flags = ACTIVE | (SYNC if sync else 0) | (BUFFERS if buffers else 0)
        told = announce(self.process_group, flags)
        self.reducer.scaling.in_join = True
        if sync:
            self.reducer.scaling.count_active(told)
            self.reducer.rebuild()
        if buffers:
            self._sync_buffers(source(told))

    def _thawed(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Parameters train that were frozen: what becomes of them is at least compared."""
        self.reducer.messages.names += [n for n, _ in named]
        self.reducer.drift.watch([p for _, p in named])

    def _sync_buffers(self, root: int) -> None:
        if "buffer_hook" in self.__dict__:
            self._ask_buffer_hook(BufferCommHookLocation.PRE_FORWARD)
        elif self.process_group.size > 1:
            buffers = [part_of(t) for t in self._buffers_to_sync()]
            if buffers:
                broadcast_coalesced(self.process_group, buffers, root=root)

    def close(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.reducer.detach()

    # --- uneven inputs --------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block around a loop in which ranks may have different numbers of inputs.

        A rank that has left it takes part with zeros until all have; in the end all have the model
        of a rank that trained to the end. Gradients are divided by the number of all ranks, or of
        those that still have input (``divide_by_initial_world_size=False``); ``weight`` gives the
        exact mean over samples. ``throw_on_early_termination``: all raise ``CommError`` as soon as
        one rank has no more input.
        """
        return Join(
            [self], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without input does."""
        return Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.reducer.params[0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # --- what it costs --------------------------------------------------------------------------

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Settings, sizes and times, under PyTorch's keys."""
        return logging_data(self)

    def report(self) -> str:
        """For people: where the time of a step goes, bytes, and which rank the others wait for."""
        return text(self)

    # --- buffers --------------------------------------------------------------------------------

    def _register_buffer_comm_hook(
        self, state: list, hook: Callable[[Any, dict], Any],
        comm_hook_location: BufferCommHookLocation = BufferCommHookLocation.POST_FORWARD,
    ) -> None:  # fmt: skip
        """Let ``hook(state, {name: buffer})`` synchronise the buffers, before or after forward,
        instead of a broadcast. Futures that it returns are waited for at the end of backward."""
        if not callable(hook):
            raise TypeError(f"hook must be callable, got {type(hook).__name__}")
        self.__dict__["buffer_hook"] = (hook, state, comm_hook_location)

    def _ask_buffer_hook(self, where: BufferCommHookLocation) -> None:
        hook, state, location = self.__dict__["buffer_hook"]
        named = dict(self.module.named_buffers())
        if location is where and named:
            with no_grad():
                self.reducer.futures += hook(state, named) or ()

    # --- the reducer ----------------------------------------------------------------------------

    def _remove_autograd_hooks(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.reducer.detach()

    def _check_reducer_finalized(self) -> None:
        """Raise unless the last backward has ended with its reduction."""
        if self.reducer.phase:
            raise AutogradError(
                "DistributedDataParallel: Expected to have finished reduction in the prior "
                "iteration: a forward has had no backward yet, or one that broke off"
            )

    def _update_process_group(self, new_process_group: ProcessGroup) -> None:
        """Average over another group from now on. All its ranks call it between two steps; they
        hold the same parameters."""
        self.__dict__["process_group"] = new_process_group
        self.reducer.move(new_process_group)


class InvariantDataParallel(DistributedDataParallel):
    """``DistributedDataParallel(..., deterministic="global")``. ``no_sync()`` changes nothing here:
    nothing is sent before the last shard of a step in any case."""

    invariant: GlobalDeterminism

    def _start(self, params: list[Tensor], metas: list[ParamMeta], group: ProcessGroup) -> None:
        for name, given in (("mixed_precision", self.mixed_precision),
                            ("delay_all_reduce_named_params", self._late[0] or None)):  # fmt: skip
            if given is not None:
                raise self._apart(f"{name}={given!r}")
        plan = plan_buckets(metas, last_first(metas), self.bucket_caps.limits())
        invariant = GlobalDeterminism(
            self.module, params, plan, group, self.virtual_shards, taking=taking_parts
        )
        self.__dict__["invariant"] = invariant
        self.__dict__["_end"] = weakref.finalize(self, invariant.detach)

    @property
    def shards(self) -> VirtualShards:
        """The virtual shards of this rank, and how far the run is."""
        return self.invariant.shards

    def __regions__(self) -> list[nn.Module]:
        """What a compiler may compile for itself."""
        return [self.module]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "invariant"}

    def _set_static_graph(self) -> None:
        """Nothing depends on it: what is sent is decided at the end of a step."""

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        raise self._apart(f"the communication hook {hook!r}")

    @property
    def reducer(self) -> Any:
        """What ``join()`` and the reports of ordinary DDP work with."""
        raise self._apart("a method (join, a report or a change of groups)")

    def _weights(self) -> Any:
        return self.invariant.weights

    def _apart(self, what: str) -> ConfigError:
        return ConfigError(
            f'DistributedDataParallel: {what} was used with deterministic="global", which sums '
            "over virtual shards in its own way; leave one of them out"
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if context.thread.grad_enabled and self._frozen.named:
            self._frozen.look()
        return self.invariant.forward(self.module, inputs, kwargs)

    def _thawed(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """It is said; nothing here compares replicas."""

    def close(self) -> None:
        self.invariant.detach()


IGNORED = "_ddp_params_and_buffers_to_ignore"
