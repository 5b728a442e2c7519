"""One capture with all that must hold for it to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from ..backends.device.array import DeviceArray
from ..backends.llvm.pointers import Pointers
from ..context import thread
from ..core.effects import Effect
from ..core.node import AccumulateGrad
from ..core.tensor import Tensor
from ..core.types.dtypes import get_default_dtype
from ..errors import CaptureError
from ..steps import stepped
from .capture import Capture
from .graph import Graph
from .guards.arguments import Call
from .guards.holders import DICT, Guard, Holder
from .guards.identity import alike
from .guards.reach import Reach
from .guards.record import Reader, Record, take_attributes, take_holders
from .instruction import Var
from .joint import Joint
from .memory import coincide, overlap, owner_of
from .passes.region import Fused
from .questions import Otherwise, answers
from .replays.replay import Afresh
from .replays.replayed import Player
from .settings import Backend


def environment() -> tuple:
    """What surrounds a call on its thread."""
    device = thread.rank.slots.get("default_device")
    return thread.grad_enabled, thread.inference, thread.anomaly, get_default_dtype(), device


class Entry:
    """A graph, how its results become those of the function, and its guards.

    ``recorder`` knows which gradients were there before, and whether the function itself ran
    backward. ``recorded``: the function's name, where steps on a device are to be CUDA graphs.
    ``backend``: what runs the graph, where that is the program's own.
    """

    def __init__(
        self,
        graph: Graph,
        rebuild: Callable[[list], Any],
        around: Reach,
        call: Call,
        joint: Joint | None,
        recorder: Capture,
        recorded: str | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.graph, self.rebuild, self.joint = graph, rebuild, joint
        self.made_of: tuple[Graph, tuple] = graph, ()  # what was captured, and the passes since
        self.answers = answers(graph.instructions)  # of its path, to what Python asks on the way
        self.objects = call.objects  # so that their identities are not used again
        self.guard, self.record = Guard([*around.holders, *recorder.effects.told]), Record()
        self.optimizers = list(around.optimizers)
        # Those whose numbers reach the program by the planned update only, and may change.
        self.planned = [o for o in self.optimizers if not around.reads_groups(o)]
        self._settle_tensors(around, call)
        self._settle_leaves(around, recorder)
        self._settle_updates()
        given = (*call.tensors, *graph.captured)
        if recorded is not None and any(t.array.__class__ is DeviceArray for t in given):
            graph.program.player = Player(graph.program, recorded)
            for ins in graph.instructions:  # (no kernel is made while steps are recorded)
                if isinstance(ins.prim, Fused):
                    ins.prim.region.left = 0
        self.runs = None if backend is None else _made_by(backend, graph, call.tensors)
        done = (ins.params.get("effect") for ins in graph.instructions)
        self.effects = [effect for effect in done if isinstance(effect, Effect)]

    def _settle_tensors(self, around: Reach, call: Call) -> None:
        graph = self.graph
        keep = [i for i, v in enumerate(graph.outside()) if v not in graph.owners]
        self.outside = [graph.captured[i] for i in keep]
        self.arrays = [t.array for t in self.outside]
        self.nodes = [t._node for t in self.outside]
        self.whole = len(keep) == len(graph.captured)
        found = {id(t): t for t in self.outside}
        others = {i: t for i, t in around.tensors.items() if i not in around.gradients}
        self.others = [t for i, t in others.items() if i not in found]
        self.other_arrays = [t.array for t in self.others]
        self.other_nodes = [t._node for t in self.others]
        self._settle_memory(around, call, {**others, **found})

    def _settle_memory(self, around: Reach, call: Call, tensors: dict[int, Tensor]) -> None:
        """Where the memory lies that the function reaches by itself, and which arguments lie
        there, too."""
        self.reached: dict[int, list] = {}
        for array in (*(t.array for t in tensors.values()), *around.arrays):
            self.reached.setdefault(owner_of(array), []).append(array)
        self.fixed, self.free = [], []
        for i, (t, owner) in enumerate(zip(call.tensors, call.owners, strict=True)):
            if any(overlap(t.array, a) for a in self.reached.get(owner, ())):
                known = tensors.get(id(t))
                cells = {id(s._st) for s in tensors.values() if s._st is not None}
                self.fixed.append((i, known, t.array, t._st if id(t._st) in cells else None))
            else:
                self.free.append(i)

    def _settle_leaves(self, around: Reach, recorder: Capture) -> None:
        """Leaves whose gradients the function makes, reads or drops."""
        self.walked = recorder.walked or bool(self.graph.grads) or bool(self.graph.owners)
        counts = self.walked or "grad" in around.names or bool(self.optimizers)
        given, own = {id(t) for t in recorder.given}, {id(p) for p in around.parameters()}
        entry = [
            (leaf, grad)
            for leaf, grad in (recorder.entry if counts else ())
            if id(leaf) in recorder.old
            and id(leaf) not in given
            and (type(leaf._node) is AccumulateGrad or grad is not None or id(leaf) in own)
        ]
        self.leaves = [leaf for leaf, _ in entry]
        self.present = [grad is None for _, grad in entry]
        alone = recorder.around.gradients
        self.pinned = [
            (leaf, grad) for leaf, grad in entry if grad is not None and id(grad) not in alone
        ]
        self.marked = [n for n in self.nodes if type(n) is AccumulateGrad] if self.walked else []
        self.hooks = self._hooks()
        self.hooked = any(self.hooks[0])
        strides = {recorder.names[v]: s for v, s in recorder.strides.items()}
        self.owned = [
            (self.graph.captured[leaf.number], self.graph.metas[c], strides[c])
            for c, leaf in self.graph.owners.items()
            if leaf.kind == "c"
        ]

    def _hooks(self) -> tuple[list, list, list]:
        return (
            [len(n.tensor_hooks or ()) for n in self.marked],
            [n.accumulate_hooks for n in self.marked],
            [n.store for n in self.marked],
        )

    def _rehooked(self) -> bool:
        """Whether there are other hooks on gradients than there were."""
        lengths, hooks, stores = self.hooks
        there = [n.tensor_hooks for n in self.marked]
        if any(there) or self.hooked:
            there = [len(hooks or ()) for hooks in there]  # type: ignore[misc]
            if there != lengths:
                return True
        return not (
            alike([n.accumulate_hooks for n in self.marked], hooks)
            and alike([n.store for n in self.marked], stores)
        )  # fmt: skip

    # --- is it still right? -----------------------------------------------------------------
    def stale(self, call: Call) -> str | None:
        """Why the capture does not stand for a call with these tensors now."""
        for i, t, array, cell in self.fixed:
            if not _is_still(call.tensors[i], t, array, cell):
                return f"argument {i} is not the tensor that the function also reaches by itself"
        owners, reached = call.owners, self.reached
        for i in self.free:
            if owners[i] in reached:
                array = call.tensors[i].array
                if any(overlap(array, a) for a in reached[owners[i]]):
                    return f"argument {i} shares memory with what the function reaches by itself"
        if self.record.holds():
            self.now = self.arrays
        else:
            why = self._changed()
            if why is not None:
                return why
            self.record.take(self._take_down)
        return self._odd_state()

    def _changed(self) -> str | None:
        """What has changed of what is compared by identity, if anything has."""
        self.now = now = [t.array for t in self.outside]
        if not alike(now, self.arrays):
            return "the memory of a tensor was replaced"
        if not alike([t._node for t in self.outside], self.nodes):
            return _regraded(self.outside, self.nodes)
        if self.others:
            if not alike([t.array for t in self.others], self.other_arrays):
                return "the memory of a tensor was replaced"
            if not alike([t._node for t in self.others], self.other_nodes):
                return _regraded(self.others, self.other_nodes)
        why = self.guard.stale()
        if why is not None:
            return why
        if [t._grad is None for t in self.leaves] != self.present:
            return "gradients present: other leaves than before have a .grad"
        if self.pinned and any(leaf._grad is not grad for leaf, grad in self.pinned):
            return "gradients: one that has other names was replaced"
        if self.marked and self._rehooked():
            return "hooks on gradients were set or removed"
        return self._other_state() if self.optimizers else None

    def _take_down(self, pointers: Pointers) -> list[Reader]:
        """Put into a record what ``_changed`` compares, which has found nothing."""
        readers = take_holders(self.guard.holders, pointers)
        readers += take_attributes((*self.outside, *self.others), ("array", "_node"), pointers)
        readers += take_attributes(self.leaves, ("_grad",), pointers, presence=True)
        readers += take_attributes((leaf for leaf, _ in self.pinned), ("_grad",), pointers)
        readers += take_attributes(self.marked, ("accumulate_hooks", "store"), pointers)
        if self.hooked:  # (what is in them may be moved)
            readers.append(lambda: (self._rehooked(),))
        else:
            readers += take_attributes(self.marked, ("tensor_hooks",), pointers, presence=True)
        if self.optimizers:
            states = (Holder(DICT, o.state, "state") for o in self.optimizers)
            readers += take_holders((*self.states.holders, *states), pointers)
        return readers

    def _odd_state(self) -> str | None:
        for leaf, meta, strides in self.owned:
            grad: Any = leaf._grad
            if grad.meta() != meta or grad._node is not None or strides != _strides(grad):
                return "a gradient is of another kind"
        for read in self.graph.reads:
            if not read.holds():
                return "a number that it read was written to"
        return self._other_numbers() if self.optimizers else None

    # --- optimizers -------------------------------------------------------------------------
    def _settle_updates(self) -> None:
        """Which instructions are updates, with the group that their numbers come from."""
        of_param = {
            id(p): (o, group)
            for o in self.planned
            for group in o.param_groups
            for p in group["params"]
        }
        self.updates = []
        for i, ins in enumerate(self.graph.instructions):
            target = ins.args[0] if ins.prim.mutates else None
            if isinstance(target, Var) and target.kind == "c":
                owner = of_param.get(id(self.graph.captured[target.number]))
                if owner is not None and owner[0].plan(owner[1])[0] is getattr(
                    ins.prim, "of", ins.prim
                ):
                    self.updates.append((i, *owner))
        self.stepping = list({id(o): o for _, o, _ in self.updates}.values())
        self.plans = self._plans()
        self.states = Guard(
            Holder(DICT, state, f"{type(o).__name__}'s state")
            for o in self.optimizers
            for state in o.state.values()
            if isinstance(state, dict)
        )
        self.kept = [x for o in self.optimizers for x in chain(o.state, o.state.values())]
        self.numbers = self._numbers()

    def _plans(self) -> list:
        return [o.plan(g)[:2] for o in self.planned for g in o.param_groups]

    def _numbers(self) -> list:
        return [v for o in self.planned for group in o.param_groups for v in group.values()]

    def _other_state(self) -> str | None:
        kept = [x for o in self.optimizers for x in chain(o.state, o.state.values())]
        if not alike(kept, self.kept):
            return "an optimizer's state was replaced"
        return self.states.stale()

    def _other_numbers(self) -> str | None:
        numbers = self._numbers()
        if alike(numbers, self.numbers):
            return None
        if self._plans() != self.plans:
            return "an optimizer's update rule changed"
        self._renumber()
        self.numbers = numbers
        return None

    def _renumber(self) -> None:
        """Give the update instructions the numbers that their optimizers plan now. (The program's
        steps have the same dicts.)"""
        planned: dict[int, dict] = {}
        for i, optimizer, group in self.updates:
            if id(group) not in planned:
                planned[id(group)] = optimizer.plan(group)[2]
            self.graph.instructions[i].params.update(planned[id(group)])
        self.graph.program.renumbered()

    # --- use --------------------------------------------------------------------------------
    def run(
        self,
        given: list[Tensor],
        graph: Graph | None = None,
        joint: Joint | None = None,
        numbers: Sequence[float] = (),
    ) -> Any:
        """Replay (right after ``stale`` found nothing). ``graph``, ``joint``: as they are for other
        sizes; ``numbers``: those that the graph has none for (``Program.numbered``)."""
        if graph is None:
            graph, joint = self.graph, self.joint
        try:
            if self.runs is None:
                out = graph.program.run(tuple(given), self.now if self.whole else None, numbers)
            else:
                out = _given_by(self.runs, given, len(graph.outputs))
        except (Afresh, Otherwise):
            raise
        except BaseException:
            for effect in reversed(self.effects):
                effect.break_off()
            raise
        if joint is not None:
            out = joint.attach(out, given, graph)
        for effect in self.effects:
            effect.settle(out)
        for optimizer in self.stepping:
            stepped(optimizer)
        return self.rebuild(list(out))


def _made_by(backend: Backend, graph: Graph, inputs: list[Tensor]) -> Callable[..., Any]:
    """What a backend of the program's own makes of a graph."""
    made = backend(graph, list(inputs))
    if not callable(made):
        raise CaptureError(
            f"compile: the backend returned {type(made).__name__}; a function of the graph's "
            "inputs is needed that gives its outputs (graph.run is one)"
        )
    return made


def _given_by(run: Callable[..., Any], given: list[Tensor], count: int) -> tuple:
    out = run(*given)
    out = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(out) != count:
        raise CaptureError(
            f"compile: what the backend made gives {len(out)} results; the graph has {count}"
        )
    return out


def _is_still(given: Tensor, known: Tensor | None, array: Any, cell: object) -> bool:
    """Whether an argument is in the memory where it was, under the same name."""
    if known is not None:
        return given is known
    return coincide(given.array, array) and (cell is None or given._st is cell)


def _strides(t: Tensor) -> Any:
    return getattr(t.array, "strides", None)


def _regraded(tensors: list[Tensor], nodes: list) -> str:
    for t, node in zip(tensors, nodes, strict=True):
        if t._node is not node:
            was = node is not None
            return f"requires_grad: {was} became {t.requires_grad}, or the leaf is another"
    return "requires_grad changed"
