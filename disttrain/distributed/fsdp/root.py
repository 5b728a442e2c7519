"""The root of a tree of units: the order in which they gather, compute, reduce and drop.

Forward notes every call of a unit: the number of the next graph node before and after it. Nodes run
latest-made first, so when backward comes to a call's *exit* (a node at its outputs) its weights are
needed, and when nothing made after the call's beginning is left they are not needed any more and
all its gradients are there: a marker in the walk's queue, no hook on the inputs.

Every rank reduces in one order, that of the calls from last to first, whatever its own graph
reaches: a call that this rank's loss does not depend on is gathered and reduced (zeros) all the
same, so ranks whose graphs differ cannot hang or mix units.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...context import thread
from ...core.backward.engine import on_finish
from ...core.effects import not_repeated
from ...core.gate import Tracer
from ...core.node import AccumulateGrad, GraphNode, next_seq
from ...core.types.device import at
from .convert import convert
from .effects import enter, leave
from .shards.lanes import Lanes
from .shards.pool import Pool
from .shards.shared_weights import SharedWeights, Turns
from .shards.weighing import Weighing
from .shards.weights import Converted, GatheredWeights, Weights
from .unit import State, Unit

__outward__ = ()  # what reaches other ranks is done by effects


class Pass:
    """The calls of one forward of the outermost module, in order: all that were ``made``, and those
    that the running backward has not left yet."""

    __slots__ = ("calls", "first", "made")

    def __init__(self) -> None:
        self.made: list[Call] = []
        self.calls: list[Call] = []
        self.first: dict[Unit, Call] = {}


class Call:
    """One call of a unit's modules: ``start`` and ``end`` number the graph nodes around it."""

    __slots__ = ("effect", "end", "entered", "pass_", "start", "unit")

    def __init__(self, unit: Unit, pass_: Pass) -> None:
        self.effect: Any = None  # which began it, where it was captured
        self.unit, self.pass_ = unit, pass_
        self.start, self.end = next_seq(), 0
        self.entered: Any = None  # the walk that has come to it
        pass_.made.append(self)
        pass_.calls.append(self)
        pass_.first.setdefault(unit, self)


class Exit(GraphNode):
    """The identity at an output of a call: backward that comes here enters the call."""

    makes = outward = True

    def __init__(self, call: Call, before: Any, meta: tuple) -> None:
        self.call, self.edges = call, (before,)
        self.shape, self.dtype = meta
        self.seq = next_seq()

    def name(self) -> str:
        return self.edges[0].name()

    def shown(self) -> GraphNode:
        return self.edges[0].shown()

    def watch(self, storage: object, index: int = 0) -> None:
        self.edges[0].watch(storage)

    def release(self) -> None:
        """It keeps nothing."""

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        call = self.call
        walk: Any = thread.walking
        if call.entered is not walk:
            call.entered = walk
            enter(call.unit.root, call, tensors)
            walk.mark(Marker(call))
        return (g,)

    def run_without(self, tensors: bool) -> tuple:
        return self.run(None, tensors)


class Marker(GraphNode):
    """Comes up in a walk when all that was recorded after the beginning of a call is done."""

    def __init__(self, call: Call) -> None:
        self.call, self.seq = call, call.start

    def release(self) -> None:
        """It keeps nothing."""

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        leave(self.call.unit.root, self.call)
        return ()


class Root:
    """What the units below one outermost module share."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self._know_weights()
        self.pool, self.lanes = Pool(), Lanes()
        self._know_device()
        self.pool.settle = self._settle
        self.depth = 0
        self.pass_: Pass | None = None
        self.walk: Any = None
        self.passes: list[Pass] = []  # that the running backward has come to
        self.reducing: list[Any] = []  # gradients on their way
        self.late: set[Unit] = set()
        self.order: list[Unit] = []  # of the last forward's ends, for prefetching
        self.open_effects: list[Any] = []  # of the calls that a capture is in
        self.weighing = Weighing()

    # -- forward -------------------------------------------------------------------------------

    def begin(self, unit: Unit, recorded: bool) -> Call | None:
        """A call of ``unit`` begins; its weights are there afterwards. ``recorded``: a backward may
        come to it."""
        if self.depth == 0 and not self._inside():
            if self.walk is not None:
                self.reset()  # the last backward broke off
            self._drop_stale()
            self.order = []
            self._begin_turn()
            self.lanes.follow()
        call = None
        if recorded:
            if self.depth == 0:
                self.pass_ = Pass()
            call = Call(unit, self.pass_ or Pass())
        self.depth += 1
        unit.unshard()
        unit.show()
        for other in unit.choices.forward_prefetch:
            other.unshard(async_op=True)
        return call

    def rehearse(self, unit: Unit, recorded: bool) -> Call | None:
        """A call of ``unit`` that gathers nothing, and that no later one knows of."""
        return Call(unit, Pass()) if recorded else None

    def _drop_stale(self) -> None:
        """Copies of weights that an earlier forward has left, or begun to gather when it broke off:
        the program may have written to shards since."""
        for unit in self.units if self._gathers else ():
            kept = unit.held or unit.kept  # until the program says that they are to go
            if unit.state is not State.SHARDED and unit.copies and not kept:
                unit.reshard()

    def _begin_turn(self) -> None:
        try:
            for w in self._gathered:
                w.refresh()
            self.turns.begin()
        except Converted:
            self.renew(self.units)
            self.turns.begin()

    def renew(self, units: list[Unit]) -> None:
        """Make the weights of ``units`` anew, as the shards and the program's choices are now."""
        for unit in units:
            if all(isinstance(w, Weights) for w in unit.weights):
                convert(unit)
        self._know_weights()
        self._know_device()
        for unit in self.units:
            unit.turns = self.turns

    def _know_device(self) -> None:
        """The device that inputs of the root's forward are brought to; None: they stay."""
        places = [u.places.use for u in self.units if not u.places.use.on_host]
        self.takes_inputs = at(places[0].kind, places[0].index) if places else None

    def _know_weights(self) -> None:
        weights = [w for unit in self.units for w in unit.weights]
        self._gathered = [w for w in weights if isinstance(w, GatheredWeights)]
        self._gathers = any(not isinstance(w, SharedWeights) for w in weights)
        self.turns = Turns([w for w in weights if isinstance(w, SharedWeights)])

    def end(self, unit: Unit, call: Call | None) -> None:
        """A call of ``unit`` has ended."""
        self.depth -= 1
        if call is not None:
            call.end = next_seq()
        if self._inside():
            return
        self.order.append(unit)
        if unit.choices.reshard_after_forward:
            unit.reshard()
        elif call is None:  # no backward will need it, and shards may be written to
            unit.hide() if unit.held else unit.reshard()
        if self.depth == 0:
            self.turns.end()

    def _inside(self) -> bool:
        """Whether what runs now is part of this root's backward: an activation checkpoint."""
        return self.walk is not None and self.walk is thread.walk

    def broke_off(self, unit: Unit) -> None:
        """A call of ``unit`` has raised."""
        self.depth -= 1
        if self._inside():
            return
        unit.reshard()
        if self.depth == 0:
            self.turns.end(failed=True)

    # -- backward ------------------------------------------------------------------------------

    def begin_backward(self) -> None:
        """The first thing that a backward pass does here."""
        self.walk = thread.walk
        self.turns.regain(wait=False)
        self.lanes.follow()
        on_finish(self.finish, self.reset)
        self.weighing.begin(self.units)

    def enter(self, call: Call) -> None:
        """Backward has come to the outputs of ``call``."""
        if self.walk is not thread.walk:
            self.begin_backward()
        if call.pass_ not in self.passes:
            self.passes.append(call.pass_)
            call.pass_.calls = list(call.pass_.made)  # a retained graph is walked again
        self._skip(call.pass_, call.end)
        unit = call.unit
        if unit.choices.unshard_in_backward:
            unit.unshard()
            unit.show()  # an activation checkpoint inside runs forward again
        self._prefetch(call)

    def _prefetch(self, call: Call) -> None:
        unit = call.unit
        others = unit.choices.backward_prefetch
        if others is None:
            others = self._before(call) if self._gathers else []
        for other in others:
            if other.choices.unshard_in_backward:
                other.unshard(async_op=True)

    @staticmethod
    def _before(call: Call) -> list[Unit]:
        """The unit whose call ended before ``call`` did: backward comes to it next."""
        ends = [c for c in call.pass_.calls if 0 < c.end < call.end]
        return [max(ends, key=lambda c: c.end).unit] if ends else []

    def leave(self, call: Call) -> None:
        """All that was recorded since the beginning of ``call`` has run."""
        self._skip(call.pass_, call.start)
        calls = call.pass_.calls
        if calls and calls[-1] is call:
            calls.pop()
        call.entered = None
        self._after(call)

    def _skip(self, pass_: Pass, after: int) -> None:
        """Do for the calls that began later than ``after`` what other ranks may have done, where
        this rank's loss does not depend on them."""
        calls = pass_.calls
        while calls and calls[-1].start > after:
            call = calls.pop()
            if call.unit.sharding.world > 1 and call.unit.choices.unshard_in_backward:
                call.unit.unshard()
            self._prefetch(call)
            self._after(call)

    def _after(self, call: Call) -> None:
        unit = call.unit
        if unit.choices.reshard_after_backward:
            unit.reshard()
        else:
            unit.kept = True
        if call.pass_.first.get(unit) is call:
            self.reduce(unit)

    def reduce(self, unit: Unit) -> None:
        """Reduce the gradients of ``unit``; the one before lands first, so at most two are in
        memory."""
        if not unit.choices.sync:
            return
        self._land()
        self.reducing = unit.reduce()

    def reduce_all(self) -> None:
        """Reduce what earlier backward passes have left; the weights are dropped."""
        not_repeated("it calls reduce_gradients()")
        self.weighing.settle(self.units)
        for unit in reversed(self.units):
            self._land()
            self.reducing = unit.reduce()
            unit.reshard()
        self._land()
        self.weighing.end(self.units)

    def _settle(self) -> None:
        """Nothing is sent: between replicas gradients go in the order of the passes, as they do on
        ranks that come here at another time."""
        for gradients in self.reducing:
            gradients.settle()

    def _land(self) -> None:
        for gradients in self.reducing:
            gradients.land()
        self.reducing = []

    def finish(self) -> None:
        """The backward pass is through."""
        for pass_ in self.passes:
            self._skip(pass_, 0)
        for unit in reversed(self.units):
            if unit.has_gradients:  # its weights were used outside of its calls
                self.reduce(unit)
            if unit.choices.reshard_after_backward and not unit.held:
                unit.reshard()
        self.weighing.end(self.units)
        last = all(unit.choices.last_backward for unit in self.units)
        if last:
            self._land()
        for unit in self.late:
            unit.reshard()
        self.late.clear()
        self.walk, self.passes = None, []
        self.lanes.release()
        # Who has waited for the reductions of all units knows that all ranks are through.
        self.turns.close(last and all(unit.choices.sync and unit.trains for unit in self.units))

    def gathered_late(self, unit: Unit) -> None:
        """``unit`` was gathered for who needed it outside of its calls."""
        if thread.walk is not None:
            if self.walk is not thread.walk:
                self.begin_backward()
            self.late.add(unit)

    def reset(self) -> None:
        """Forget the step that was broken off: gradients on their way, gathers, markers."""
        backward = self.walk is not None
        self.depth, self.walk, self.passes, self.reducing = 0, None, [], []
        self.late.clear()
        self.weighing.forget()
        for unit in self.units:
            unit.discard_gradients()
            unit.reshard()
        # Where gradients are reduced nobody ends this backward without this rank.
        self.turns.reset(backward, all(unit.choices.sync for unit in self.units))


def add_exits(call: Call, outputs: Iterable[Any]) -> None:
    """Put an exit of ``call`` on every output that has a place in the graph."""
    for t in outputs:
        if isinstance(t, Tracer):
            continue
        node = t.graph_node()
        if node is None or node.__class__ is AccumulateGrad:
            continue
        if node.__class__ is Exit and node.call is call:
            continue
        t._node = Exit(call, node, t.meta())
        if t._retains:
            t.retain_again(node)
