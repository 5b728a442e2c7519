"""Fills buckets from gradient hooks, reduces them in order, and waits at the end of backward.

Each leaf's accumulator stores its gradient straight into its slot (``.grad`` is a view of the
bucket, which lies in memory that peers can read), so nothing is copied before or after the
collective. Buckets are launched strictly in index order, so every rank issues the same sequence.

One backward that synchronises goes through three phases: IDLE (gradients are accumulated as
always), ARMED (a forward asked for synchronisation), SYNCING (its gradients come in), and ends
where the walk does. Knows no module.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...context import thread
from ...core.engine import on_finish
from ...core.tensor import Tensor, wrap
from .buckets import ALIGN, ParamMeta, plan_in_order
from .grad_bucket import GradBucket, fill
from .graph import below, nodes_of, reached
from .messages import Messages
from .rows import MISSING, Row, Rows, extra

ndarray = np.ndarray
held = sys.getrefcount
IDLE, ARMED, SYNCING = range(3)
NO_LIMIT = sys.maxsize
Hook = Callable[[Any, GradBucket], Any]


@dataclass(frozen=True)
class Settings:
    """How gradients are put together and reduced; see ``DistributedDataParallel``."""

    cap_bytes: int
    first_cap_bytes: int
    find_unused: bool = False
    views: bool = False


class Reducer:
    """Averages the gradients of ``params`` over ``group`` during backward."""

    def __init__(
        self,
        params: Sequence[Tensor],
        metas: Sequence[ParamMeta],
        group: Any,
        settings: Settings,
        sync_wanted: Callable[[], bool],
        messages: Messages,
        static: bool = False,
    ) -> None:
        self.params, self.metas = list(params), list(metas)
        self.group, self.settings = group, settings
        self.sync_wanted, self.messages = sync_wanted, messages
        self.static = static
        self.hook: tuple[Hook, Any] | None = None
        self.nodes = [p._node for p in self.params]
        self.expected: list[int] | None = None  # how often each gradient comes, where static
        self.phase = IDLE
        self.roots: list[weakref.ref] = []  # the results of the forward that armed this
        self.older: list[weakref.ref] = []  # of forwards before it that had no backward yet
        self.arrivals: list[int] | None = []  # until the buckets are rebuilt
        self.steps = 0  # synchronised backwards
        self.accumulated: set[int] = set()  # with gradients of backwards that were not synced
        self.divisor = group.size
        self.joined = False
        self.tables: dict[str, np.ndarray] = {}
        for kind in {m.dtype for m in self.metas}:
            self._scales(kind)
        count = len(self.params)
        self.views: list[Tensor] = [None] * count  # type: ignore[list-item]
        self.slots: list[np.ndarray] = [None] * count  # type: ignore[list-item]
        self.place = [0] * count
        self._lay_out(range(count - 1, -1, -1), first=True)
        self._reset()
        self.stores = [_store(self, i) for i in range(count)]
        self.attach()

    # --- the leaves -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Make the leaves' accumulators store gradients here."""
        for node, store in zip(self.nodes, self.stores, strict=True):
            node.store = store

    def detach(self) -> None:
        """Give the leaves back their ordinary accumulation."""
        for node, store in zip(self.nodes, self.stores, strict=True):
            if node.store is store:
                node.store = None

    # --- buckets --------------------------------------------------------------------------------

    def _lay_out(self, order: Sequence[int], first: bool = False) -> None:
        """Make the buckets for gradients that come in ``order``.

        The first time it is one bucket per type, unless it must hold for good (``find_unused``).
        """
        s = self.settings
        caps = (s.cap_bytes, s.first_cap_bytes)
        if first and (self.static or not s.find_unused):
            caps = (NO_LIMIT, NO_LIMIT)
        align = ALIGN if self.hook is None else 1  # hooks see gradients one behind the other
        self.buckets = plan_in_order(self.metas, order, *caps, align)
        self.flats = [np.empty(0)] * len(self.buckets)
        more = extra(self.group.size, len(self.params) if s.find_unused else 0)
        for b, bucket in enumerate(self.buckets):
            last = b == len(self.buckets) - 1
            flat = self.group.empty(bucket.numel + (more if last else 0), bucket.dtype)
            flat.fill(0)
            self._house(b, flat)
        self.sizes = [len(b.slots) for b in self.buckets]

    def _house(self, b: int, flat: np.ndarray) -> None:
        """Let bucket ``b`` lie in ``flat``. Gradients that are views of the bucket move along;
        tensors that somebody else has kept, do not."""
        self.flats[b] = flat
        for s in self.buckets[b].slots:
            i = s.param
            slot = flat[s.offset : s.offset + s.numel].reshape(self.metas[i].shape)
            view = self.views[i]
            if view is not None and self.params[i]._grad is view:
                slot[...] = view.array
                view.array = slot
                view._st = None
            else:
                self.views[i] = wrap(slot)
            self.slots[i] = slot
            self.place[i] = b
        if b == len(self.buckets) - 1:
            self.rows = Rows(flat[self.buckets[b].numel :], self.group.rank, self.group.size)

    def let_go(self, i: int) -> None:
        """Somebody has kept the last gradient of parameter ``i``: leave its memory to them."""
        if self.settings.views:
            return
        b = self.place[i]
        old = self.flats[b]
        flat = self.group.empty(old.size, old.dtype)
        flat[...] = old
        self._house(b, flat)

    def rebuild(self) -> bool:
        """Once, before the second synchronised iteration: buckets in the order in which rank 0's
        gradients came. Every rank calls it at the same time; whether it was done now."""
        if self.arrivals is None or not (self.steps or self.joined):
            return False
        arrivals, self.arrivals = self.arrivals, None
        if self.settings.find_unused and not self.static:
            return False
        rest = range(len(self.params) - 1, -1, -1)
        order = np.array(list(dict.fromkeys([*arrivals, *rest])), np.int32)
        self.group.broadcast(order, 0)
        self._lay_out(order.tolist())
        self._reset()
        return True

    def register_hook(self, state: Any, hook: Hook) -> None:
        """Let ``hook(state, bucket)`` reduce the buckets. Before the first backward."""
        self.hook = (hook, state)
        self._lay_out(range(len(self.params) - 1, -1, -1), first=True)
        self._set_scale()

    def take_over(self, i: int, leaf: Tensor, old: Tensor) -> Tensor:
        """Parameter ``i`` has a gradient already: from now on it is the slot. One that the program
        has made itself comes back with the result, unless gradients are to be views."""
        view = self.views[i]
        if old is not view:
            if not (self.settings.views or old.array is view.array) and old.array.flags.writeable:
                self.foreign[i] = old
            leaf._grad = view
        return view

    # --- scales ---------------------------------------------------------------------------------

    def _scales(self, kind: np.dtype) -> np.ndarray:
        """The factor of gradients of type ``kind``, an array without dimensions."""
        if kind.str + kind.name not in self.tables:
            self.tables[kind.str + kind.name] = np.array(1 / self.divisor).astype(kind)
        return self.tables[kind.str + kind.name]

    def _set_scale(self) -> None:
        for table in self.tables.values():
            table[...] = 1.0 if self.hook is not None else 1 / self.divisor

    # --- one iteration --------------------------------------------------------------------------

    def _reset(self) -> None:
        self.left = list(self.sizes)
        self.next = 0  # the bucket that is launched next
        self.fired = [0] * len(self.params)
        self.works: list[Any] = []
        self.unused: list[int] = []
        self.kept: dict[int, np.ndarray] = {}  # gradients as they were before
        self.foreign: dict[int, Tensor] = {}  # gradients that the program has made itself
        if self.static and self.expected is None:
            self.next = -1  # nothing, before it is known what will come

    def prepare(self, outputs: Any) -> None:
        """Called after a forward that wants synchronisation: the next backward fills the
        buckets."""
        if self.nodes[0].store is not self.stores[0] or self.nodes[-1].store is not self.stores[-1]:
            self.attach()  # another wrapper of the same parameters was at work
        if self.phase == ARMED:
            self.older = [r for r in [*self.older, *self.roots] if r() is not None]
        self._reset()
        self.phase = ARMED
        self.roots = [weakref.ref(node) for node in nodes_of(outputs)]

    def begin(self) -> bool:
        """A gradient has come while none was being synchronised; whether it begins now."""
        if self.phase == IDLE and not reached(self.older):
            return False
        if not self.sync_wanted():
            if not reached(self.roots):
                return False  # that forward has had no backward; this one is of another
            raise self.messages.misused()
        if self.phase == IDLE:
            self._reset()
        on_finish(self.finish)
        self.phase = SYNCING
        if self.expected is not None:
            self._take_unused([i for i, n in enumerate(self.expected) if not n])
        elif self.settings.find_unused and not self.static:
            walk = thread.walk
            self._take_unused([i for i, n in enumerate(self.nodes) if not walk.reaches(n)])
        return True

    def _take_unused(self, indices: list[int]) -> None:
        for i in indices:
            self._fill_unused(i)

    def _fill_unused(self, i: int) -> None:
        """A parameter without a gradient here still takes part: with zeros, or with what it has."""
        slot = self.slots[i]
        old = self.params[i]._grad
        if old is None:
            slot.fill(0)
        else:
            self.kept[i] = old.array.copy()
            np.multiply(old.array, self._scales(slot.dtype), out=slot)
        self.unused.append(i)
        self.fired[i] = 1
        self.ready(i)

    def again(self, i: int, array: Any) -> None:
        """Another gradient of one parameter in one backward (re-entrant checkpointing)."""
        if not self.static:
            raise self.messages.twice(i)
        expected = 0 if self.expected is None else self.expected[i]
        if expected and self.fired[i] >= expected:
            raise self.messages.deviated(i, self.fired[i] + 1, expected)
        slot = self.slots[i]
        slot += array * self._scales(slot.dtype)
        self.fired[i] += 1
        if self.fired[i] == expected:
            self.ready(i)

    def ready(self, i: int) -> None:
        """The gradient of parameter ``i`` is in its slot."""
        b = self.place[i]
        left = self.left[b] - 1
        self.left[b] = left
        if not left and b == self.next:
            self.launch()

    def launch(self) -> None:
        """Reduce the next bucket, and those behind it that are complete."""
        last = len(self.buckets) - 1
        while self.next <= last and not self.left[self.next]:
            b = self.next
            self.next = b + 1
            if self.hook is not None:
                self.works.append(self._ask_hook(b))
                continue
            if b == last:
                self._tell()
            if self.group.size > 1:
                self.works.append(self.group.all_reduce(self.flats[b], async_op=True))

    def _ask_hook(self, b: int) -> Any:
        hook, state = self.hook  # type: ignore[misc]
        bucket = self.buckets[b]
        members = [s.param for s in bucket.slots]
        given = GradBucket(
            bucket, b, b == len(self.buckets) - 1, self.flats[b][: bucket.numel],
            [self.params[i] for i in members],
        )  # fmt: skip
        future = hook(state, given)
        if not hasattr(future, "wait"):
            raise self.messages.no_future(hook, future)
        return future

    def _tell(self) -> None:
        """Write what the other ranks must know into the tail of the last bucket."""
        flags = MISSING if self.missing else 0
        self.rows.write(Row(flags))
        if self.settings.find_unused:
            used = self.rows.used
            used.fill(1)
            idle = [i for i in self.unused if i not in self.accumulated]
            used[idle] = 0

    missing: tuple[int, ...] = ()

    # --- its end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """The walk is over: reduce what has not come, wait for all, see what the others say."""
        if self.next < len(self.buckets):
            self._complete()
        if self.hook is not None:
            for b, future in enumerate(self.works):
                self._take_answer(b, future.wait())
        else:
            for work in self.works:
                work.wait()
            self._listen()
        missing, self.missing = self.missing, ()
        self.phase = IDLE
        self.older = [r for r in self.older if r() is not None]
        if missing:
            raise self.messages.missing_here(missing)
        if self.unused:
            self._settle_unused()
        for i, own in self.foreign.items():
            np.copyto(own.array, self.slots[i])
            self.params[i]._grad = own
            if own._st is not None:
                own._st.version += 1
        self.accumulated.clear()
        self.steps += 1

    def _complete(self) -> None:
        """Launch what has not been launched, so that no rank waits for this one in vain."""
        if self.static and self.expected is None:
            self.expected = list(self.fired)
            self.next = 0
            for i, n in enumerate(self.fired):
                if not n:
                    self._fill_unused(i)
            self.launch()
            return
        silent = [i for i, n in enumerate(self.fired) if not n or self._short(i)]
        reached = below([r() for r in self.roots])
        walk = thread.walk
        self.missing = tuple(
            i for i in silent if not (walk.reaches(self.nodes[i]) or self.nodes[i] in reached)
        )
        for i in silent:
            self._fill_unused(i)

    def _short(self, i: int) -> bool:
        return self.expected is not None and self.fired[i] < self.expected[i]

    def _take_answer(self, b: int, answer: Any) -> None:
        """What the hook's future gives is the bucket."""
        if isinstance(answer, (list, tuple)) and len(answer) == 1:
            answer = answer[0]
        fill(self.flats[b][: self.buckets[b].numel], answer, "the result of a communication hook")

    def _listen(self) -> None:
        rows = self.rows.read()
        flags = 0
        for row in rows:
            flags |= row.flags
        if flags & MISSING:
            mine, self.missing = self.missing, ()
            self.phase = IDLE
            raise self.messages.missing_anywhere(mine)

    def _settle_unused(self) -> None:
        """Parameters unused here get the average, unless no rank has used them."""
        used = self.rows.used if self.settings.find_unused and self.hook is None else None
        if self.settings.find_unused and self.hook is not None:
            used = np.ones(len(self.params), np.int32)
            used[[i for i in self.unused if i not in self.accumulated]] = 0
            self.group.all_reduce(used)
        for i in self.unused:
            p = self.params[i]
            if used is None or used[i]:
                p._grad = self.views[i]
            elif i in self.kept and p._grad is self.views[i]:
                self.slots[i][...] = self.kept[i]


def _store(r: Reducer, i: int) -> Callable[[Tensor, Any], None]:
    """How parameter ``i`` takes its gradient. Runs once per parameter and backward: kept flat."""
    views, slots, scale = r.views, r.slots, r._scales(r.metas[i].dtype)
    multiply, add = np.multiply, np.add

    def store(leaf: Tensor, g: Any) -> None:
        array = g if g.__class__ is ndarray else getattr(g, "array", g)
        if r.phase != SYNCING and not r.begin():
            keep(leaf, array)
            return
        if r.fired[i]:
            r.again(i, array)
            return
        r.fired[i] = 1
        old = leaf._grad
        if old is None:
            if held(views[i]) > 2 or (views[i]._st is not None and held(views[i]._st) > 2):
                r.let_go(i)
            view = leaf._grad = views[i]
            multiply(array, scale, out=slots[i])
        else:
            view = r.take_over(i, leaf, old)
            slot = slots[i]
            add(old.array, array, out=slot)
            multiply(slot, scale, out=slot)
        if view._st is not None:
            view._st.version += 1
        if r.arrivals is not None:
            r.arrivals.append(i)
        if r.expected is None or r.expected[i] == 1:
            b = r.place[i]
            left = r.left[b] - 1
            r.left[b] = left
            if not left and b == r.next:
                r.launch()

    def keep(leaf: Tensor, array: Any) -> None:
        """A backward that is not synchronised: add up."""
        r.accumulated.add(i)
        old = leaf._grad
        if old is None:
            if held(views[i]) > 2 or (views[i]._st is not None and held(views[i]._st) > 2):
                r.let_go(i)
            leaf._grad = old = views[i]
            slots[i][...] = array
        else:
            try:
                add(old.array, array, out=old.array)
            except ValueError:  # an expanded view, of a backward that was recorded
                leaf._grad = wrap(old.array + array)
        if old._st is not None:
            old._st.version += 1

    return store
