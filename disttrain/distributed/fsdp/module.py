"""``FSDPModule``: the class that modules get from ``fully_shard``, and what users can tell it.

Its call gathers the unit's weights, runs the module's own call with its hooks, and gives them up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ... import nn
from ...context import thread
from ...core.effects import aside, not_repeated
from ...core.saved import Complete
from ...core.types.dtypes import numpy_type
from ...errors import ConfigError
from ...nn.module import Module
from ..collectives.nested import cast, find_tensors, moved
from ..invariant.shards import VirtualShards
from ..invariant.weights import checked
from .convert import convert
from .effects import begin, broke_off, choose, end
from .root import Root, add_exits
from .shards.shared_weights import Turns
from .shards.weighing import Weight
from .unit import Unit

SLOT = "_fsdp"
__outward__ = ()  # what reaches other ranks is done by effects


class Place:
    """What a module of ``fully_shard`` knows: its unit (none where it has no parameters of its
    own), and whether its call begins or ends the calls of the unit's modules."""

    __moving__ = ("call", "is_root", "root")

    def __init__(self, unit: Unit, module: Module) -> None:
        self.unit, self.module = unit, module
        self.root: Root | None = None
        self.call: Any = None
        self.is_root = False
        self.opens = unit.modules[0] is module
        self.closes = unit.modules[-1] is module

    # As PyTorch's internals, which scripts and tests look at, are called.
    _is_root = property(lambda self: self.is_root)
    _fsdp_param_group = property(lambda self: self.unit if self.unit.members else None)

    def _lazy_init(self) -> None:
        prepare(self.module)


class UnshardHandle:
    """What ``unshard(async_op=True)`` gives."""

    def __init__(self, unit: Unit | None) -> None:
        self._unit = unit

    def wait(self) -> None:
        """Until the full weights are there; the module holds them from then on."""
        if self._unit is not None:
            not_repeated("it waits for full weights")
            aside(self._unit.wait)
            self._unit.show()
            self._unit = None


class InParts(nn.Module):
    """A root of units whose backward may come in several passes: what is to communicate when."""

    __lent__ = ("weight",)

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward reduces gradients. Without, full gradients accumulate in memory."""
        self._choose(recurse, sync=bool(requires_gradient_sync))

    def reduce_gradients(self) -> None:
        """Reduce the gradients that backward passes without synchronisation have left, of all
        units, on every rank of the mesh. For backwards that come in parts (zero-bubble pipelines);
        otherwise the last backward with ``set_requires_gradient_sync(True)`` does it."""
        self._root().reduce_all()

    @contextmanager
    def weighted(self, count: float, loss: str = "mean") -> Iterator[None]:
        """The loss whose backward runs in the block stands for ``count`` samples (or tokens).

        ``weight`` of ``DistributedDataParallel`` (where parameters leave it that name): gradients
        become the mean over all samples of all ranks that reduce together, also of backwards that
        are not reduced at once. Called on the root, on every rank and for every backward; 0 stands
        for nothing, whose gradients do not count. A rank's share takes the place of one rank's:
        what divides by another number than that of ranks (``set_gradient_divide_factor``) does so
        here.
        """
        with self._weighed(checked(f"{type(self).__name__}.weighted", count, loss)):
            yield

    def __getattr__(self, name: str) -> Any:
        """``weight`` is ``weighted``, as of ``DistributedDataParallel``, where the module has no
        parameter, buffer or submodule of that name."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name != "weight":
                raise
        return self.weighted

    @contextmanager
    def _weighed(self, given: tuple[float, float]) -> Iterator[None]:
        """Backwards in the block have the weight ``given``: a ``Weight``, or what makes one."""
        not_repeated("it calls weighted()")
        weighing = self._rooted("weighted").weighing
        run = self.__dict__.get("_run")
        before = weighing.given
        weighing.run, weighing.given = run, Weight(*given)
        if run is not None:
            run.weights.set_weight(given)
        try:
            yield
        finally:
            weighing.given = before
            if run is not None:
                run.weights.set_weight(before)

    def _rooted(self, where: str) -> Root:
        """The root that this module is."""
        place = self.__dict__[SLOT]
        if place.root is None:
            aside(self._prepare)
        if not place.is_root:
            raise RuntimeError(
                f"{type(self).__name__}.{where}() was called on a module inside of the root, which "
                "reduces for all of its units; call it on the root module"
            )
        return place.root

    def _prepare(self) -> None:
        prepare(self)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward waits in the end for all reductions."""
        self._choose(True, last_backward=bool(is_last_backward))

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether the unit drops its weights after backward."""
        self._choose(recurse, reshard_after_backward=bool(reshard_after_backward))

    def _choose(self, recurse: bool, **values: Any) -> None:
        choices = []
        for module in self.modules() if recurse else (self,):
            place = module.__dict__.get(SLOT)
            if place is not None:
                choices.append(place.unit.choices)
        choose(choices, values)

    def _root(self) -> Root:
        return self.__dict__[SLOT].root


class FSDPModule(InParts):
    """A module whose parameters are shards outside of its forward."""

    __steering__ = (SLOT,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return around(self, super().__call__, args, kwargs)

    def __regions__(self) -> list[Module]:
        """What a compiler may compile for itself: the module, with no other unit in it."""
        below = (m for m in self.modules() if m is not self)
        return [] if any(SLOT in m.__dict__ for m in below) else [self]

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError(
            "FSDP does not support deepcopy: shards belong to a group. Copy the module before "
            "fully_shard, or build it again and load a state dict"
        )

    @property
    def shards(self) -> VirtualShards:
        """The virtual shards of this rank, where ``deterministic="global"`` was asked for."""
        run = self.__dict__.get("_run")
        if run is None:
            raise ConfigError(
                f"{type(self).__name__}: it has no virtual shards, because fully_shard was not "
                'called on it with deterministic="global"'
            )
        return run.shards

    # --- weights ------------------------------------------------------------------------------
    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the unit's full weights; the module holds them until ``reshard()``."""
        not_repeated("it calls unshard()")
        unit = self._unit()
        aside(unit.hold)
        aside(unit.unshard, async_op)
        handle = UnshardHandle(unit)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Drop the unit's full weights; the module holds the shards."""
        not_repeated("it calls reshard()")
        self._unit().reshard()

    def reset_iter_state(self) -> None:
        """After an exception in the middle of a step: forget its gradients and drop all weights."""
        not_repeated("it calls reset_iter_state()")
        prepare(self)
        self._root().reset()

    # --- choices ------------------------------------------------------------------------------
    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces over the replicas (of a two-dimensional mesh), too."""
        self._choose(recurse, all_reduce=bool(requires_all_reduce))

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the unit drops its weights after forward and gathers them again in backward."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(
                f"set_reshard_after_forward: {reshard_after_forward!r} was given; needed is a bool"
            )
        self._choose(recurse, reshard_after_forward=reshard_after_forward)

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """Parameters without a gradient take part in reductions as zeros here in any case."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward gathers this unit's weights: not needed where no operation of its
        backward reads them (an embedding)."""
        self._choose(False, unshard_in_backward=bool(unshard_in_backward))

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide summed gradients by ``factor``, not by the number of ranks."""
        self._choose(False, divide_factor=float(factor))

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Scale gradients by a factor instead of taking the mean."""
        self._choose(False, force_sum=bool(enable))

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Begin to gather these modules' weights when this one's forward begins."""
        self._choose(False, forward_prefetch=_units("set_modules_to_forward_prefetch", modules))

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Begin to gather these modules' weights when this one's backward begins."""
        self._choose(False, backward_prefetch=_units("set_modules_to_backward_prefetch", modules))

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: object = None) -> None:
        """``hook(reduced)`` for every reduced block of gradients, before it reaches ``.grad``."""
        self._choose(False, all_reduce_hook=hook)

    def set_custom_all_gather(self, comm: object) -> None:
        """Gather this unit's weights by ``comm(output, input, group, async_op)``, in memory from
        ``comm.allocate(size, dtype=, device=)``; they are no longer the shards themselves then."""
        self._choose(False, gather_with=comm)
        root, unit = self._root(), self._unit()
        if root is not None:
            root.renew([unit])
        else:
            convert(unit)
            unit.turns = Turns(unit.shared())

    def set_custom_reduce_scatter(self, comm: object) -> None:
        """Reduce this unit's gradients by ``comm(output, input, group, op, async_op)``."""
        self._choose(False, reduce_with=comm)

    def set_reduce_scatter_max_input_buffers(
        self, max_input_buffers: int, *, recurse: bool = True
    ) -> None:
        """How many units' gradients may be under way: one is where they are large, else two."""
        if max_input_buffers < 1:
            raise ValueError(
                f"set_reduce_scatter_max_input_buffers: {max_input_buffers} was given; needed is "
                "at least 1"
            )

    def set_separate_reduce_scatter_group(
        self, enable: bool = True, *, recurse: bool = True
    ) -> None:
        """One group's operations never wait for each other's data here, so it changes nothing."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """What is communicated lies in the group's memory in any case."""

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """What is communicated lies in memory that all ranks see in any case."""

    def set_post_optim_event(self, event: object) -> None:
        """A step has ended when it returns here, so there is no event to wait for."""

    def _unit(self) -> Unit:
        return self.__dict__[SLOT].unit


def _units(where: str, modules: Iterable[Any]) -> list[Unit]:
    found = []
    for m in modules:
        place = m.__dict__.get(SLOT) if isinstance(m, nn.Module) else None
        if place is None:
            raise ValueError(
                f"{where}: {type(m).__name__} was given; needed are modules that fully_shard was "
                "called on"
            )
        found.append(place.unit)
    return found


def prepare(module: Module) -> None:
    """Make ``module`` the root of the tree of units below it, unless it belongs to one."""
    place = module.__dict__[SLOT]
    if place.root is not None:
        return
    if len(place.unit.modules) > 1:
        raise RuntimeError(
            f"FSDP requires a single root module but got {place.unit.modules}: call fully_shard on "
            "the module that holds them, and run that"
        )
    place.is_root = True
    places: list[Place] = []
    units: list[Unit] = []
    for name, m in module.named_modules():
        below = m.__dict__.get(SLOT)
        if below is None:
            continue
        if below.root is not None:
            raise RuntimeError(
                f"FSDP state has already been lazily initialized for {name}\nFSDP requires running "
                f"forward through the root module first: {name} ran before {type(module).__name__}"
            )
        places.append(below)
        if below.unit not in units:
            below.unit.name_it(name, len(units))
            units.append(below.unit)
    root = Root(units)
    for p in places:
        p.root = p.unit.root = root
    for unit in units:
        unit.adopt()
        unit.join(root, root.pool)
        if unit.choices.reshard_after_forward is None:
            unit.choices.reshard_after_forward = unit is not place.unit


def around(module: Module, run: Callable, args: tuple, kwargs: dict) -> Any:
    """``run(*args, **kwargs)`` of ``module`` with its full weights."""
    place = module.__dict__[SLOT]
    if place.root is None:
        aside(prepare, module)
    root, unit = place.root, place.unit
    if root.takes_inputs is not None and root.depth == 0:
        args, kwargs = moved((args, kwargs), root.takes_inputs)
    if unit.param_type is not None and unit.policy.cast_forward_inputs:
        args, kwargs = cast((args, kwargs), unit.param_type)
    call = None
    if place.opens:
        recorded = thread.grad_enabled and not (thread.walking is not None and thread.saving)
        call = unit.open_call = begin(root, unit, recorded)
    try:
        out = run(*args, **kwargs)
    except BaseException as error:
        if place.opens:
            broke_off(root, unit, isinstance(error, Complete))
        raise
    if place.closes:
        call = unit.open_call
        out = leave(unit, call, out)
        end(root, unit, call)
    elif unit.open_call is not None:
        out = leave(unit, unit.open_call, out)
    return out


def leave(unit: Unit, call: Any, out: object) -> Any:
    """The outputs of a call: cast as the policy says, with exits."""
    if unit.policy.output_dtype is not None:
        out = cast(out, numpy_type(unit.policy.output_dtype))
    if call is not None:
        add_exits(call, find_tensors(out))
    return out


def share_comm_ctx(modules: list[Any]) -> None:
    """For pipeline stages that are roots of their own. The reductions of all roots of a rank wait
    in one queue per group here, so that there is nothing to share."""
    _units("share_comm_ctx", modules)


def register_fsdp_forward_method(module: nn.Module, method_name: str) -> None:
    """Let ``module.method_name`` gather weights as ``forward`` does."""
    if SLOT not in module.__dict__:
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method = getattr(type(module), method_name)

    @functools.wraps(method)
    def wrapped(*args: object, **kwargs: object) -> Any:
        return around(module, functools.partial(method, module), args, kwargs)

    setattr(module, method_name, wrapped)
