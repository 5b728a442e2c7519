"""A unit: the parameters that are gathered together, as an explicit state.

    SHARDED --start--> GATHERING --finish--> FULL --reshard--> SHARDED

``shown`` says beside that whether the modules hold the full weights (inside forward, or after
``unshard()``) or the shards. Gradients are deposited by the full weights' leaves, whatever the
state. When each step is taken is the root's affair (``root``).
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from ...backends.device.memory import HOST
from ...backends.null import NullArray
from ...comm.calls.header import hash64
from ...comm.group.blocks import Blocks
from ...context import thread
from ...core import Tensor
from ...core.effects import not_repeated
from ...core.types.dtypes import numpy_type
from ...errors import AutogradError, ConfigError
from .shards.dtensor_params import (
    forget_values,
    full_array,
    note_spread,
    original_array,
    own_array,
    shard_array,
)
from .shards.gradients import Gradients
from .shards.lanes import Lanes
from .shards.layout import plan_block
from .shards.members import Choices, Member, Sharding
from .shards.params import adopt, make_full, make_sharded
from .shards.places import Places, places_of
from .shards.pool import Pool
from .shards.precision import MixedPrecisionPolicy
from .shards.shared_weights import SharedWeights, Turns, is_plain
from .shards.weights import GatheredWeights, Weights
from .shards.window_weights import WindowWeights

__outward__ = ()  # what reaches other ranks is done by effects
TAKEN = "_fsdp_taken"  # a mark on parameters that were replaced by shards: whose they are


class State(Enum):
    """Where a unit's full weights are."""

    SHARDED = "sharded"
    GATHERING = "gathering"
    FULL = "full"


class Unit:
    """The parameters of ``modules``, sharded over a group."""

    # What effects look at as it is when they are done.
    __moving__ = (
        "_current", "_gradients", "held", "index", "kept", "lanes", "members", "name", "open_call",
        "places", "pool", "root", "sharding", "shown", "state", "turns", "weights",
    )  # fmt: skip

    def __init__(
        self,
        modules: list[Any],
        members: list[Member],
        sharding: Sharding,
        policy: MixedPrecisionPolicy,
        choices: Choices,
    ) -> None:
        self.modules, self.members, self.sharding = modules, members, sharding
        self.policy, self.choices = policy, choices
        self.name, self.index = "", -1
        self.state = State.SHARDED
        self.shown = False
        self.root: Any = None
        self.open_call: Any = None  # the call of its modules that is running
        self.pool, self.lanes = Pool(), Lanes()
        self.param_type = numpy_type(policy.param_dtype)
        self.weights: list[Weights] = []
        self.places = Places(HOST, HOST)
        self.held = False  # by the program's own unshard()
        self.kept = False  # from a backward on, as it was told
        self._gradients: dict[tuple, tuple] = {}
        self._current: tuple = ((), {})
        self._shard()
        self.turns = Turns(self.shared())

    # -- making it -----------------------------------------------------------------------------

    def _shard(self) -> None:
        """Replace every parameter by its shard."""
        self.places = self._places([original_array(m) for m in self.members])
        kinds: dict[np.dtype, list[Member]] = {}
        for m in self.members:
            note_spread(m)
            kinds.setdefault(m.sharded.array.dtype, []).append(m)
        for kind, members in kinds.items():
            shapes = [(m.name, tuple(original_array(m).shape), m.dim) for m in members]
            layout = plan_block(shapes, self.sharding.world, kind.itemsize)
            for m, place in zip(members, layout.params, strict=True):
                m.layout, m.kind = place, kind
            used = self.used_type(kind)
            weights = self.make_weights(members, layout, kind, used)
            self.weights.append(weights)
            shards = weights.take([original_array(m) for m in members])
            for m, shard in zip(members, shards, strict=True):
                self._install(m, shard, used)

    def make_weights(
        self, members: list[Member], layout: Any, kind: np.dtype, used: np.dtype
    ) -> Weights:
        """Memory for members of one type, as they and the group allow it."""
        look = hash64(str([(m.name, m.layout.shape, m.dim, str(kind)) for m in members]))
        name = self.modules[0]._get_name()  # until the unit has one of its own
        blocks = Blocks(self.sharding.group, name, (look,))
        group, on_host = self.sharding.group, self.places.use.on_host
        plain = on_host and all(is_plain(m, kind, used) for m in members)
        own_way = self.choices.gather_with
        if own_way is not None:
            plain = False
        if plain and group.transport.shares and self.choices.folder is None:
            return SharedWeights(members, layout, self.sharding, kind, blocks)
        shares = on_host and group.transport.shares and self.sharding.world > 1
        found = WindowWeights if shares and own_way is None else GatheredWeights
        weights = found(members, layout, self.sharding, (kind, used), blocks, self.places)
        weights.folder, weights.gather_with = self.choices.folder, own_way
        return weights

    def _places(self, arrays: list[Any]) -> Places:
        return places_of(arrays, self.sharding.mesh.device_type, self.choices.offload)

    def used_type(self, kind: np.dtype) -> np.dtype:
        """The type in which weights of type ``kind`` are gathered."""
        floating = kind.kind in "fV"
        return self.param_type if self.param_type is not None and floating else kind

    def _install(self, m: Member, shard: object, used: np.dtype) -> None:
        original = m.sharded
        m.sharded = make_sharded(self, original, shard_array(m, self.sharding, shard), m.layout)
        m.full = make_full(self, full_array(m, NullArray(m.layout.shape, used)))
        m.full._member = m
        if original.requires_grad:
            self._train(m)
        del m.full.array
        forget_values(m)
        original.__dict__[TAKEN] = f"{m.name!r} of {self.modules[0]._get_name()}"
        for module, name in m.places:
            module._parameters[name] = m.sharded

    def _train(self, m: Member) -> None:
        """Let the full weight deposit its gradient here."""
        m.full.requires_grad_()
        m.full._node.store, m.full._node.elsewhere = self._store(m), True

    def _store(self, m: Member) -> Any:
        raw = self.places.use.raw

        def store(leaf: Tensor, g: Any) -> None:
            where = self._current[1].get(m)
            if where is None:
                self._plan_gradients()
                where = self._current[1][m]
            if self.root is not None and self.root.walk is not thread.walk:
                self.root.begin_backward()
            gradients, i = where
            array = g.array if isinstance(g, Tensor) else g
            gradients.deposit(i, raw(array if m.spread is None else own_array(m, array)))

        return self.places.use.guarded(store)

    _module_fqn = property(lambda self: self.name)  # as PyTorch's internals are called
    fsdp_params = property(lambda self: self.members)

    def adopt(self) -> None:
        """Take parameters that a program has registered in the place of shards."""
        for m in self.members:
            module, name = m.places[0]
            found = module._parameters.get(name)
            if found is not m.sharded and found is not m.full:
                adopt(self, found, m)

    def name_it(self, name: str, index: int) -> None:
        """Give the unit its name and number in the tree, which stand in its messages."""
        self.name, self.index = name, index
        prefix = f"{name}." if name else ""
        for m in self.members:
            m.fqn = prefix + m.name
        for i, w in enumerate(self.weights):
            w.blocks = Blocks(self.sharding.group, f"unit {name}", (index, i))

    # -- weights -------------------------------------------------------------------------------

    def unshard(self, async_op: bool = False) -> None:
        """Gather the full weights (with ``async_op`` only begin to)."""
        if self.state is State.SHARDED:
            with self.places.use.here():
                for w in self.weights:
                    w.start(async_op, self.lanes.of(w.places.use))
            self.state = State.GATHERING
        if not async_op and self.state is State.GATHERING:
            self.wait()

    def wait(self) -> None:
        """The end of ``unshard(async_op=True)``."""
        if self.state is not State.GATHERING:
            return
        with self.places.use.here():
            for w in self.weights:
                w.finish()
        self.state = State.FULL

    def fulls(self) -> list[Tensor]:
        """The full weights that are there."""
        return [m.full for m in self.members if "array" in m.full.__dict__]

    @property
    def label(self) -> str:
        """What it is called in texts."""
        return self.name or self.modules[0]._get_name()

    def shared(self) -> list[SharedWeights]:
        """The weights that take turns."""
        return [w for w in self.weights if isinstance(w, SharedWeights)]

    @property
    def copies(self) -> bool:
        """Whether full weights are not the shards themselves."""
        return len(self.shared()) < len(self.weights)

    @property
    def gathers(self) -> bool:
        """Whether none of its full weights are the shards themselves, and there are peers."""
        return bool(self.weights) and not self.shared() and self.sharding.world > 1

    @property
    def trains(self) -> bool:
        """Whether its backward reduces gradients."""
        return any(m.sharded._node is not None for m in self.members) or not self.members

    def hold(self) -> None:
        """The program wants the full weights until ``reshard``."""
        self.lanes.follow()
        if not self.held:
            self.held = True
            self.turns.begin()

    def join(self, root: Any, pool: Pool) -> None:
        """Belong to ``root``, whose units take turns and gradients' memory together."""
        if self.held:
            self.turns.end()
        self.turns.regain()
        self.pool, self.turns, self.lanes = pool, root.turns, root.lanes
        for g in self.gradients():
            pool.reserve(g.size() * g.kind.itemsize)
        if self.held:
            self.turns.begin()

    def show(self) -> None:
        """Let the modules hold the full weights."""
        if self.shown:
            return
        self.shown = True
        for m in self.members:
            full = m.full
            if (m.sharded._node is None) is not (full._node is None):
                self._follow(m)
            for module, name in m.places:
                module._parameters[name] = full

    def _follow(self, m: Member) -> None:
        """The shard has been frozen, or is to be trained."""
        if m.sharded._node is None:
            m.full.requires_grad_(False)
        else:
            self._train(m)
        if not self.has_gradients:
            self._current = ((), {})

    def hide(self) -> None:
        """Let the modules hold the shards."""
        if not self.shown:
            return
        self.shown = False
        for m in self.members:
            sharded = m.sharded
            for module, name in m.places:
                module._parameters[name] = sharded

    def reshard(self) -> None:
        """Drop the full weights."""
        self.hide()
        self.kept = False
        if self.state is not State.SHARDED:
            self.state = State.SHARDED
            for w in self.weights:
                w.drop()
        if self.held:
            self.held = False
            self.turns.end()

    def gather_late(self) -> None:
        """Something outside of forward and backward needs a full weight."""
        if self.root is None:
            raise AutogradError(
                f"fully_shard: a full weight of unit {self.name or self.modules[0]._get_name()!r} "
                "is used while it is sharded; use it inside the module's forward, or call "
                "module.unshard() first"
            )
        not_repeated("a whole weight is used outside of the call of the module that has it")
        self.lanes.follow()
        self.unshard()
        self.root.gathered_late(self)

    # -- gradients -----------------------------------------------------------------------------

    def _plan_gradients(self) -> None:
        """Divide the members that are trained now by the type of their reduction. While gradients
        wait to be reduced members that were frozen since stay among them."""
        trained = tuple([m for m in self.members if m.sharded._node is not None])
        waiting = any(any(g.has) or g.partial is not None for g in self._current[0])
        if waiting and all(m in self._current[1] for m in trained):
            return
        known = self._gradients.get(trained)
        if known is None:
            known = self._gradients[trained] = self._make_gradients(trained)
        if known is not self._current and waiting:
            raise ConfigError(
                f"fully_shard: parameters of unit {self.name!r} were set to train while gradients "
                "of earlier backward passes wait to be reduced; reduce them first"
            )
        self._current = known

    def _make_gradients(self, trained: tuple) -> tuple:
        kinds: dict[np.dtype, list[Member]] = {}
        wanted = numpy_type(self.policy.reduce_dtype)
        for m in trained:
            kinds.setdefault(wanted or m.kind, []).append(m)
        made: list[Gradients] = []
        where: dict[Member, tuple[Gradients, int]] = {}
        for k, (kind, members) in enumerate(kinds.items()):
            label = (self.index, len(self._gradients), k)
            blocks = Blocks(self.sharding.group, f"unit {self.name}", label)
            line = self.lanes.of(self.places.use)
            g = Gradients(
                members, self.sharding, kind, self.choices, blocks, self.pool, self.places, line
            )
            made.append(g)
            where |= {m: (g, i) for i, m in enumerate(members)}
        return tuple(made), where

    def forget_gradients(self) -> None:
        """Plan the reductions anew."""
        self._gradients.clear()
        self._current = ((), {})

    def gradients(self) -> tuple[Gradients, ...]:
        """The gradients of the members that are trained now, by the type of their reduction."""
        self._plan_gradients()
        return self._current[0]

    @property
    def has_gradients(self) -> bool:
        """Whether gradients were deposited that are not being reduced yet."""
        return any(any(g.has) for g in self._current[0])

    def reduce(self) -> list[Gradients]:
        """Begin to reduce the gradients; ``land()`` of what this gives adds them to ``.grad``."""
        found = list(self.gradients())
        with self.places.use.here():
            for g in found:
                g.launch()
        return found

    def discard_gradients(self) -> None:
        for made, _ in self._gradients.values():
            for g in made:
                g.discard()

    def nbytes(self) -> int:
        """Bytes of the full weights."""
        return sum(w.nbytes for w in self.weights)
