"""``FullyShardedDataParallel``: a module in a wrapper, its parameters one sharded vector.

The wrapper makes a unit (``unit``) of the parameters that no wrapper inside has taken, and
runs the module's forward as ``fully_shard`` does (``module.around``). Whole parameters, state dicts
and optimizer states have files of their own. Works on every device that tensors live on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

from .... import nn
from ....core.types.device import at
from ....core.types.dtypes import numpy_type
from ....errors import ConfigError
from ....nn.module import Module
from ....trace import warn
from ...collectives.nested import cast
from ...groups.process_group import ProcessGroup
from ..module import SLOT, InParts, Place, around, prepare
from ..names import UNIT, clean_tensor_name
from ..settings import (
    HYBRID,
    KEEPS_AFTER_FORWARD,
    BackwardPrefetch,
    CPUOffload,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from ..shards.members import Choices, Sharding
from ..shards.precision import CPUOffloadPolicy, MixedPrecisionPolicy
from ..wrap import auto_wrap
from . import build, norm, optim_api
from . import state as flat_state
from .full_params import Summons, summoned
from .unit import FlatUnit


class TrainingState(Enum):
    """What a unit is in the middle of."""

    IDLE = auto()
    FORWARD_BACKWARD = auto()
    SUMMON_FULL_PARAMS = auto()


class FullyShardedDataParallel(optim_api.OptimizerStates, InParts):
    """Wrap ``module``: its parameters, gradients and optimizer state are sharded over a group.

    ``process_group`` (a pair of groups, of shards and of replicas, for hybrid strategies) or
    ``device_mesh``. ``auto_wrap_policy``: which modules inside become units of their own.
    ``mixed_precision``: types of weights and reductions. ``ignored_modules``, ``ignored_states``:
    what stays as it is. ``param_init_fn(module)``: values for parameters on the meta device (None:
    ``reset_parameters``). ``sync_module_states``: take rank 0's values first. ``use_orig_params``:
    ``parameters()`` gives the module's own parameters (each rank has a part of them, perhaps an
    empty one) instead of one ``FlatParameter`` per unit. ``device_id``: the device that a module on
    the CPU is moved to first. ``cpu_offload``: whether shards, gradients and so the optimizer's
    state lie on the CPU while the device computes. ``limit_all_gathers`` is kept: gathered memory
    is let go of in the order of the program, and no host waits for that.

    Make the optimizer afterwards (with ``use_orig_params`` before is fine, too).
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: ProcessGroup | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Any = None,
        param_init_fn: Callable[[Any], None] | None = None,
        device_id: object = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Any = None,
        device_mesh: Any = None,
    ) -> None:
        super().__init__()
        _check(module, param_init_fn)
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        modules, params = build.ignored_of(
            module, ignored_modules, ignored_states, FullyShardedDataParallel
        )
        sharding = build.resolve_groups(
            process_group, device_mesh, strategy, auto_wrap_policy, (module, device_id)
        )
        strategy = _for_one(strategy, sharding)
        if auto_wrap_policy is not None:
            hybrid = strategy in HYBRID and device_mesh is None
            pair = (sharding.group, sharding.replicas)
            rest = {
                "process_group": pair if hybrid else process_group,
                "device_mesh": device_mesh,
                "sharding_strategy": strategy,
                "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch,
                "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn,
                "device_id": device_id,
                "sync_module_states": sync_module_states,
                "forward_prefetch": forward_prefetch,
                "limit_all_gathers": limit_all_gathers,
                "use_orig_params": use_orig_params,
                "ignored_states": params,
            }
            auto_wrap(module, auto_wrap_policy, modules, params, rest, type(self))
        self.sharding_strategy = strategy
        self.cpu_offload = cpu_offload or CPUOffload()
        self.backward_prefetch, self.forward_prefetch = backward_prefetch, forward_prefetch
        self.mixed_precision = mixed_precision or MixedPrecision()
        self.limit_all_gathers, self._use_orig_params = limit_all_gathers, use_orig_params
        self._comm_hook: Any = None
        self._comm_hook_state: Any = None
        self.__dict__ |= {
            "_ignored_modules": modules, "_ignored_params": params,
            "_settings": flat_state.defaults(), "_buffer_types": {},
        }  # fmt: skip
        self._make_unit(module, sharding, param_init_fn, sync_module_states, device_id)

    def _make_unit(
        self, module: nn.Module, sharding: Sharding, init: Callable | None, sync: bool,
        device_id: object,
    ) -> None:  # fmt: skip
        """Shard the parameters that no unit inside has taken."""
        cls = FullyShardedDataParallel
        ignored: set = self.__dict__["_ignored_modules"]
        self.process_group, self._inter_node_pg = sharding.group, sharding.replicas
        self._device_mesh = sharding.mesh
        self.rank, self.world_size = sharding.group.rank, sharding.group.size
        setattr(self, UNIT, module)
        build.materialize(module, ignored, init, cls, device_id)
        members = build.members_of(module, self.__dict__["_ignored_params"], cls)
        for group in (sharding.replicas, sharding.group) if sync else ():
            if group is not None:
                build.sync_states(module, members, ignored, group)
        if self.sharding_strategy is ShardingStrategy.NO_SHARD:
            sharding = build.replicated(sharding)
        choices = Choices(reshard_after_forward=_reshard(self.sharding_strategy))
        if self.cpu_offload.offload_params:
            choices.offload = CPUOffloadPolicy()
        precision = self.mixed_precision
        unit = FlatUnit(module, members, sharding, _policy(precision), choices,
                        self._use_orig_params, precision.keep_low_precision_grads)  # fmt: skip
        unit.offloads = self.cpu_offload.offload_params
        place = self.__dict__[SLOT] = Place(unit, self)
        place.opens = place.closes = True  # this module's call is the unit's

    # -- what it is ----------------------------------------------------------------------------

    def __regions__(self) -> list[Module]:
        """What a compiler may compile for itself: the module inside, with no other unit in it."""
        inner = self.module
        return [] if any(SLOT in m.__dict__ for m in inner.modules()) else [inner]

    @property
    def module(self) -> Any:
        """The module inside (of an activation wrapper, too)."""
        inner = self._modules[UNIT]
        return getattr(inner, "_checkpoint_wrapped_module", inner)

    def __getattr__(self, name: str) -> Any:
        try:
            return nn.Module.__getattr__(self, name)
        except AttributeError:
            if name == UNIT or "_modules" not in self.__dict__:
                raise
        inner = self._modules[UNIT]
        if name == "weight" and not hasattr(inner, name):
            return self.weighted
        found = getattr(inner, name)
        is_weighted = getattr(found, "__func__", None) is InParts.weighted
        return self.weighted if is_weighted else found  # not of what is wrapped twice

    def __getitem__(self, key: int) -> Any:
        return self.module[key]

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError(
            "FSDP does not support deepcopy: shards belong to a group. Copy the module before it "
            "is wrapped, or build it again and load a state dict"
        )

    @property
    def _unit(self) -> FlatUnit:
        return self.__dict__[SLOT].unit

    @property
    def _handle(self) -> _Handle | None:
        return _Handle(self._unit) if self._unit.weights else None

    @property
    def _flat_param(self) -> Any:
        return self._unit.flat

    @property
    def _has_params(self) -> bool:
        return bool(self._unit.weights)

    @property
    def params(self) -> list[Any]:
        """The flat parameters: one, or none where units inside have taken everything."""
        return [self._unit.flat] if self._unit.weights else []

    @property
    def compute_device(self) -> Any:
        use = self._unit.places.use
        return at(use.kind, use.index)

    @property
    def _is_root(self) -> bool | None:
        """None before the first forward."""
        root = self.__dict__[SLOT].root
        return None if root is None else root.units[0] is self._unit

    def check_is_root(self) -> bool:
        """Whether no other unit is around this one."""
        prepare_root(self)
        return bool(self._is_root)

    @property
    def training_state(self) -> TrainingState:
        unit = self._unit
        if unit.exposed is not None:
            return TrainingState.SUMMON_FULL_PARAMS
        return TrainingState.IDLE if unit.resting else TrainingState.FORWARD_BACKWARD

    def _assert_state(self, state: TrainingState) -> None:
        states = state if isinstance(state, list) else [state]
        if self.training_state not in states:
            raise ValueError(
                f"expected to be in states {states} but current state is {self.training_state}"
            )

    @staticmethod
    def fsdp_modules(module: nn.Module, root_only: bool = False) -> list[Any]:
        """The wrappers in ``module``, itself included; with ``root_only`` those that are roots."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return [m for m in found if m.check_is_root()] if root_only else found

    def _prepare(self) -> None:
        prepare_root(self)

    # -- computing -----------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, with its whole parameters."""
        prepare_root(self)
        kind = self._input_type()
        if kind is not None:
            args, kwargs = cast((args, kwargs), kind)
        return around(self, self._modules[UNIT], args, kwargs)

    def _input_type(self) -> Any:
        precision = self.mixed_precision
        wanted = precision.cast_forward_inputs
        if self._is_root:
            wanted = precision.cast_root_forward_inputs
        return numpy_type(precision.param_dtype) if wanted else None

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in the block do not communicate: whole gradients accumulate in memory,
        until the next one outside reduces them."""
        if not self.check_is_root():
            raise RuntimeError(
                "FullyShardedDataParallel.no_sync: `no_sync()` on inner FSDP instances is not "
                "supported. Please call `no_sync()` on root FSDP module."
            )
        units = self.__dict__[SLOT].root.units
        before = [u.choices.sync for u in units]
        for u in units:
            u.choices.sync = False
        try:
            yield
        finally:
            for u, sync in zip(units, before, strict=True):
                u.choices.sync = sync

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scale all gradients so that their norm together, over all ranks, is at most ``max_norm``;
        gives the norm. Every rank of the group calls it, on the root."""
        if not self.check_is_root():
            raise RuntimeError(
                "FullyShardedDataParallel.clip_grad_norm_: `clip_grad_norm_()` should only be "
                "called on the root FSDP instance"
            )
        units = [m._unit for m in self.fsdp_modules(self)]
        return norm.clip(self, units, float(max_norm), float(norm_type))

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Let ``hook`` reduce gradients: ``hook(state, gradient, shard)`` writes this rank's part
        of the reduced vector into ``shard``; ``hook(state, gradient)`` reduces in place where
        parameters are not sharded. It divides by the number of ranks itself."""
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        below = self.fsdp_modules(self)
        for m in below:
            if m._comm_hook is not None:
                raise AssertionError("A communication hook is already registered")
            if m.sharding_strategy in HYBRID:
                raise AssertionError("Communication hook is not supported for hybrid strategies")
            if not callable(hook):
                raise ValueError(f"The communication hook must be callable but got {hook}")
        for m in below:
            m._comm_hook, m._comm_hook_state = hook, state
            m._unit.set_hook(state, hook)

    # -- whole parameters ----------------------------------------------------------------------

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: nn.Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Inside the block ``module`` has whole parameters in full precision, which may be read,
        written and (``writeback``) keep what was written. Every rank of the group enters it.

        ``recurse``: units inside, too. ``rank0_only``: only each group's first rank sees them.
        ``with_grads``: gradients, too. Not during forward or backward.
        """
        if writeback and rank0_only:
            raise NotImplementedError(
                "summon_full_params: writeback=True and rank0_only=True together is not supported: "
                "what rank 0 writes would have to be sent to the others; write on all ranks"
            )
        own = [m for m in FullyShardedDataParallel.fsdp_modules(module)
               if recurse or m is module]  # fmt: skip
        if with_grads and (offload_to_cpu or any(not m._use_orig_params for m in own)):
            raise NotImplementedError(
                "summon_full_params: with_grads=True is not supported with use_orig_params=False "
                "or offload_to_cpu=True: gradients belong to the parameters of the module then"
            )
        units = [m._unit for m in own]
        with summoned(units, Summons(writeback, rank0_only, offload_to_cpu, with_grads)):
            yield

    def apply(self, fn: Callable[[Any], None]) -> Any:
        """``fn(module)`` for every module inside, with whole parameters; what it writes is kept."""
        with self.summon_full_params(self, recurse=False):
            return super().apply(fn)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Parameters by name; while whole parameters are there, as if nothing were wrapped."""
        whole = self._unit.exposed is not None
        for name, param in super().named_parameters(*args, **kwargs):
            yield (clean_tensor_name(name) if whole else name), param

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Buffers by name; while whole parameters are there, as if nothing were wrapped."""
        whole = self._unit.exposed is not None
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield (clean_tensor_name(name) if whole else name), buffer

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._unit.retype()
        return self

    # -- state dicts ---------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's state as ``state_dict_type`` says: by default whole, under the names of the
        module inside. Every rank of the group calls it."""
        return flat_state.save(self, super().state_dict, args, kwargs)

    def _load_from_state_dict(self, state_dict: object, prefix: str, *rest: Any) -> None:
        flat_state.load(self, state_dict, prefix, *rest)

    @property
    def _state_dict_type(self) -> StateDictType:
        return self.__dict__["_settings"].state_dict_type

    set_state_dict_type = staticmethod(flat_state.set_type)
    get_state_dict_type = staticmethod(flat_state.get_type)
    state_dict_type = staticmethod(flat_state.of_type)


class _Handle:
    """A unit as programs look at it."""

    def __init__(self, unit: FlatUnit) -> None:
        self._unit = unit

    @property
    def flat_param(self) -> Any:
        return self._unit.flat

    @property
    def uses_sharded_strategy(self) -> bool:
        return self._unit.weights[0].layout.world > 1

    @property
    def sharded_grad(self) -> Any:
        return self._unit.flat.grad  # type: ignore[union-attr]


def prepare_root(module: Module) -> None:
    """Make ``module`` the root of the units inside, unless it belongs to a root already."""
    place = module.__dict__[SLOT]
    if place.root is not None:
        return
    below = module.fsdp_modules(module)
    same = {m.limit_all_gathers for m in below}
    if len(same) > 1:
        raise ConfigError(
            "FullyShardedDataParallel: Expects one homogeneous value for limit_all_gathers but got "
            f"{same}"
        )
    for m in below:
        other = m.__dict__[SLOT]
        if other.root is not None and not other.is_root:
            other.root = None  # of a wrapper that is no longer around it
    prepare(module)
    for m in below:
        if m.sharding_strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD):
            m._unit.choices.reshard_after_forward = m is not module
        m._unit.name_it(clean_tensor_name(m._unit.name), m._unit.index)
        _cast_buffers(m)


def _cast_buffers(fsdp: FullyShardedDataParallel) -> None:
    kind = fsdp.mixed_precision.buffer_dtype
    if kind is None:
        return
    ignored, kept = fsdp.__dict__["_ignored_modules"], fsdp.__dict__["_buffer_types"]
    for _, m in build.own_modules(fsdp._modules[UNIT], FullyShardedDataParallel):
        if m in ignored:
            continue
        for name, b in m._buffers.items():
            if b is not None and b.dtype.is_floating_point:
                kept[(m, name)] = b.dtype
                m._buffers[name] = b.to(kind)


def _check(module: Module, param_init_fn: object) -> None:
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        warn(
            "FSDP will not all-gather parameters for containers that do not implement forward: "
            f"{type(module).__name__}",
        )
    if param_init_fn is not None and not callable(param_init_fn):
        raise ConfigError(
            f"FullyShardedDataParallel: Expected param_init_fn to be callable, but got "
            f"{type(param_init_fn)}"
        )


def _for_one(strategy: ShardingStrategy, sharding: Sharding) -> ShardingStrategy:
    """A group of one has nothing to shard."""
    alone = sharding.group.size == 1 and sharding.replicas is None
    if alone and strategy is not ShardingStrategy.NO_SHARD:
        warn(
            f"FSDP is switching to use `NO_SHARD` instead of {strategy} since the world size is 1."
        )
        return ShardingStrategy.NO_SHARD
    return strategy


def _reshard(strategy: ShardingStrategy) -> bool | None:
    if strategy is ShardingStrategy.NO_SHARD or strategy in KEEPS_AFTER_FORWARD:
        return False
    return None


def _policy(precision: MixedPrecision) -> MixedPrecisionPolicy:
    reduce = precision.reduce_dtype or precision.param_dtype
    return MixedPrecisionPolicy(precision.param_dtype, reduce, None, False)
