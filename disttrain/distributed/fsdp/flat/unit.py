"""A unit of ``FullyShardedDataParallel``: its parameters are one vector.

Programs see the vector's chunk (``FlatParameter``), or with ``use_orig_params`` the parameters, of
which each rank has a part. The states and moves are those of ``Unit``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import context
from ....backends.null import NullArray
from ....comm.group.blocks import Blocks
from ....context import thread
from ....core import wrap
from ....core.tensor import Tensor
from ....core.types.dtypes import numpy_type
from ....errors import AutogradError, ConfigError
from ....nn.module import Module
from ....nn.parameter import replace_data
from ..shards.gradients import Gradients
from ..shards.members import Choices, Member, Sharding
from ..shards.params import make_full
from ..shards.precision import MixedPrecisionPolicy
from ..unit import State, Unit
from .layout import FlatLayout, plan_flat
from .moves import FlatGradients, FlatWeights, FlatWindow, OverRanks, raw_of
from .param import FLAT_PARAM, FlatParameter, make_flat

PARTS = "over_parts"  # what clipping asks parameters for
_OWNERS = "distributed.fsdp.owners"


def owner_of(param: Tensor) -> FlatUnit | None:
    """The unit that has taken ``param`` on this rank."""
    known: dict[int, tuple] = context.current().slot(_OWNERS, dict)
    found, unit = known.get(id(param), (_nothing, _nothing))
    return unit() if found() is param else None


def _nothing() -> None:
    return None


def _own(unit: FlatUnit, params: list[Any]) -> None:
    """Note whose ``params`` are; not on them, so that copies of them are nobody's."""
    known: dict[int, tuple] = context.current().slot(_OWNERS, dict)
    for key in [k for k, (found, _) in known.items() if found() is None]:
        del known[key]
    known |= {id(p): (weakref.ref(p), weakref.ref(unit)) for p in params}


class FlatUnit(Unit):
    """The parameters ``members`` of ``module``."""

    weights: list[FlatWeights]  # type: ignore[assignment]

    def __init__(
        self,
        module: Module,
        members: list[Member],
        sharding: Sharding,
        policy: MixedPrecisionPolicy,
        choices: Choices,
        use_orig_params: bool,
        keep_low: bool,
    ) -> None:
        self.use_orig, self.keep_low = use_orig_params, keep_low
        self.hook: tuple[Any, Any] | None = None
        self.offloads = False  # the program wants shards apart from the weights in use
        self.orders: dict[Any, tuple[str, ...]] = {}  # of the parameters that modules had
        self.exposed: list[Any] | None = None  # what stands in the parameters' places meanwhile
        super().__init__([module], members, sharding, policy, choices)

    # -- making it -----------------------------------------------------------------------------

    def _shard(self) -> None:
        if not self.members:
            return
        kind = _one_kind(self.members)
        self.places = self._places([m.sharded.array for m in self.members])
        if not self.use_orig:
            _check_uniform(self.members)
        layout = plan_flat([(m.name, tuple(m.sharded.shape)) for m in self.members],
                           self.sharding.world)  # fmt: skip
        used = self.used_type(kind)
        blocks = Blocks(self.sharding.group, "", (0,))
        w = self._make_vector(layout, (kind, used), blocks)
        w.take([m.sharded.array for m in self.members])
        self.weights.append(w)
        self.orders = {m: tuple(m._parameters) for x in self.members for m, _ in x.places}
        _own(self, [m.sharded for m in self.members])
        trains = any(m.sharded.requires_grad for m in self.members)
        names = tuple(m.name for m in self.members)
        w.param = make_flat(w.held(w.local), layout, trains, names, self.use_orig)
        for m in self.members:
            m.layout = layout.pieces[self.members.index(m)]
            m.full = make_full(self, NullArray(tuple(m.sharded.shape), used))
            if m.sharded.requires_grad:
                self._train(m)
            del m.full.array
        if self.use_orig:
            self._show_parts(w)
        else:
            self._show_vector(w)
        self.mark_parts(True)

    def _make_vector(self, layout: FlatLayout, kinds: tuple, blocks: Blocks) -> FlatWeights:
        several = layout.world > 1 and self.sharding.group.transport.shares
        found = FlatWindow if several and self.places.use.on_host else FlatWeights
        return found(self.members, layout, self.sharding, kinds, blocks, self.places)

    def _show_parts(self, w: FlatWeights) -> None:
        """The parameters keep their identity; their memory is this rank's part."""
        for m, piece in zip(self.members, w.cut(), strict=True):
            m.sharded.grad = None
            replace_data(m.sharded, wrap(w.held(piece)))
        w.param._params = [m.sharded for m in self.members]  # type: ignore[union-attr]

    def _show_vector(self, w: FlatWeights) -> None:
        """The vector's chunk is the only parameter; modules have the full weights as attributes."""
        for m in self.members:
            m.sharded = w.param
            for module, name in m.places:
                del module._parameters[name]
                module.__dict__[name] = m.full
        self.modules[0]._parameters[FLAT_PARAM] = w.param

    def mark_parts(self, are: bool) -> None:
        """Whether what the program trains are parts, whose norm other ranks have the rest of."""
        for p in {id(m.sharded): m.sharded for m in self.members}.values():
            if are and self.sharding.world > 1:
                p.__dict__[PARTS] = OverRanks(self.sharding.group)
            else:
                p.__dict__.pop(PARTS, None)

    @property
    def flat(self) -> FlatParameter | None:
        """The vector's chunk; None where the unit has no parameters."""
        return self.weights[0].param if self.weights else None

    # -- weights -------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Parameters that a program has replaced are taken up when weights are gathered."""

    def show(self) -> None:
        if self.use_orig:
            super().show()
            return
        self.shown = True
        flat = self.flat
        if flat is not None and (flat._node is None) is not (self.members[0].full._node is None):
            for m in self.members:
                self._follow(m)

    def hide(self) -> None:
        if self.use_orig:
            super().hide()
        else:
            self.shown = False

    def gather_late(self) -> None:
        if thread.walk is None:
            raise AutogradError(
                f"FullyShardedDataParallel: a full weight of unit {self.name or 'of the root'!r} "
                "is used outside of its module's forward, where it is not there; read and write "
                "it inside FSDP.summon_full_params(module)"
            )
        super().gather_late()

    def retype(self) -> None:
        """The program has converted the chunk (``half()``, ``to(device)``): the vector follows."""
        if not self.weights:
            return
        old = self.weights[0]
        assert old.param is not None
        now: Any = self.members[0].sharded.array if self.use_orig else old.param.array
        places = self._places([now])
        if now.dtype == old.kind and places.home == old.places.home:
            return
        self.places = places
        kinds = (now.dtype, self.used_type(now.dtype))
        w = self._make_vector(old.layout, kinds, old.blocks)
        w.param = old.param
        parts = w.cut() if self.use_orig else [w.local]
        owners = [m.sharded for m in self.members] if self.use_orig else [old.param]
        for owner, part in zip(owners, parts, strict=True):
            w.write(part, raw_of(owner.array).reshape(part.shape))
            replace_data(owner, wrap(w.held(part)))
        w.written()
        old.param._local = w.held(w.local)
        if self.use_orig:
            replace_data(old.param, wrap(w.held(w.local)))
        self.weights = [w]
        for m in self.members:
            if m.full._node is not None:
                self._train(m)
        self._gradients.clear()
        self._current = ((), {})

    # -- gradients -----------------------------------------------------------------------------

    def _make_gradients(self, trained: tuple) -> tuple:
        if not self.weights:
            return (), {}
        w = self.weights[0]
        kind = numpy_type(self.policy.reduce_dtype) or w.kind
        label = (self.index, len(self._gradients), 0)
        blocks = Blocks(self.sharding.group, f"unit {self.name}", label)
        line = self.lanes.of(self.places.use)
        g = FlatGradients(w, np.dtype(kind), self.choices, blocks, self.pool, line)
        g.hook, g.keep = self.hook, self.keep_low
        return (g,), {m: (g, i) for i, m in enumerate(self.members) if m in trained}

    def reduce(self) -> list[Gradients]:
        trains = any(m.sharded._node is not None for m in self.members)
        return super().reduce() if trains else []

    def set_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Let the program reduce gradients."""
        self.hook = (state, hook)
        for made, _ in self._gradients.values():
            for g in made:
                g.hook = self.hook

    @property
    def resting(self) -> bool:
        """Whether no forward or backward that uses the unit is under way."""
        root = self.root
        if root is None or self.state is State.GATHERING:
            return self.state is not State.GATHERING
        waiting = root.pass_ is not None and bool(root.pass_.calls)
        return not (root.depth > 0 or root.walk is not None or (thread.walk and waiting))


def _one_kind(members: list[Member]) -> np.dtype:
    kinds = {m.sharded.array.dtype for m in members}
    if len(kinds) > 1:
        some = {k: next(m.name for m in members if m.sharded.array.dtype == k) for k in kinds}
        listed = ", ".join(f"{name} is {kind}" for kind, name in some.items())
        raise ConfigError(
            f"FullyShardedDataParallel: Must flatten tensors with uniform dtype, but {listed}; "
            "wrap them in units of their own, convert them, or use fully_shard"
        )
    return kinds.pop()


def _check_uniform(members: list[Member]) -> None:
    """One flat parameter is trained or frozen as a whole."""
    frozen = [m.name for m in members if not m.sharded.requires_grad]
    if frozen and len(frozen) < len(members):
        raise ConfigError(
            "FullyShardedDataParallel: Must flatten tensors with uniform requires_grad when "
            f"use_orig_params=False, but {frozen} are frozen and the others are not; pass "
            "use_orig_params=True, or wrap the frozen ones in a unit of their own"
        )
