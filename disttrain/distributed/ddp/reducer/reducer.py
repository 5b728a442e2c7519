"""Fills buckets from gradient hooks, reduces them in order, and waits at the end of backward.

Each leaf's accumulator stores its gradient straight into its slot (``.grad`` is a view of the
bucket, which lies in memory that peers can read), so nothing is copied before or after the
collective. Buckets are launched strictly in index order, so every rank issues the same sequence.

One backward that synchronises goes through three phases: IDLE (gradients are accumulated as
always), ARMED (a forward asked for synchronisation), SYNCING (its gradients come in), and ends
where the walk does. Knows no module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends.device.memory import HOST, memory_of
from ....comm.group.group import ProcessGroup
from ....comm.job.blackbox import recorder
from ....context import REPEATABLE_SLOT, thread
from ....core.backward.engine import on_finish
from ....core.tensor import Tensor, wrap
from .buckets import ALIGN, ParamMeta, last_first, plan_buckets
from .caps import BucketCaps
from .contexts import lend
from .drift import Drift
from .dtensor_params import Part, taking_parts
from .grad_bucket import GradBucket, fill, result_of
from .graph import below, nodes_of, reached
from .memory import BucketMemory
from .messages import Messages
from .mixed_precision import LowPrecision, make_cast_store
from .row_sums import RowSums
from .scaling import Scaling
from .side_data import JOINED, MISSING, WEIGHTED, DeviceRows, Row
from .sparse import Tables
from .stats import Stats
from .stores import ARMED, IDLE, SYNCING, VOID, make_place, make_store

Hook = Callable[[Any, GradBucket], Any]


@dataclass(frozen=True)
class Settings:
    """How gradients are put together and reduced; see ``DistributedDataParallel``."""

    caps: BucketCaps
    find_unused: bool = False
    views: bool = False


class Reducer:
    """Averages the gradients of ``params`` over ``group`` during backward."""

    def __init__(
        self,
        params: Sequence[Tensor],
        metas: Sequence[ParamMeta],
        group: ProcessGroup,
        settings: Settings,
        sync_wanted: Callable[[], bool],
        messages: Messages,
        static: bool = False,
        low: LowPrecision | None = None,
        by_rows: Collection[int] = (),
        sparse: Sequence[int] = (),
    ) -> None:
        """``metas`` have the types in which gradients travel. ``low``: the parameters in mixed
        precision, whose gradients are not views of the buckets. ``by_rows``: matrices whose
        gradients may touch few rows. ``sparse``: tables whose gradients are to be sparse."""
        memory = self.memory = memory_of(params[0].array) if params else HOST
        self.params, self.metas = list(params), list(metas)
        self.group, self.settings, self.static = group, settings, static
        self.sync_wanted, self.messages = sync_wanted, messages
        self.hook: tuple[Hook, Any] | None = None
        self.scaling = Scaling(self.params, group, memory, messages)
        self.lent: Any = None  # the walk whose gradients are not those in .grad
        self.nodes = [p._node for p in self.params]
        self.expected: list[int] | None = None  # how often each gradient comes, where static
        self.phase = IDLE
        self.roots: list[weakref.ref] = []  # the results of the forward that armed this
        self.older: list[weakref.ref] = []  # of forwards before it that had no backward yet
        self.arrivals: list[int] | None = []  # until the buckets are rebuilt
        self.steps = 0  # synchronised backwards
        self.missing: tuple[int, ...] = ()
        self.used: np.ndarray | None = None  # how many ranks use each parameter, where known
        self.futures: list[Any] = []  # of hooks for buffers: waited for at the end of backward
        self.by_rows = {i: RowSums(group) for i in by_rows if memory.on_host}
        self.drift = Drift(self.params, messages, on=group.transport.hears and memory.on_host)
        self.stats = Stats(group.size)
        self.house = BucketMemory(self.params, self.metas, group, memory)
        self.order = last_first(self.metas)
        self._lay_out(self.order, first=True)
        self.low, self.full_types = low, [p.array.dtype for p in self.params]
        make = make_store if low is None else make_cast_store
        self.stores = [
            taking_parts(p, memory.guarded(make(self, i))) for i, p in enumerate(self.params)
        ]
        plain = [low is None and memory.on_host and not isinstance(p, Part) for p in self.params]
        self.places = [make_place(self, i) if fits else None for i, fits in enumerate(plain)]
        self.scaling.rescale()
        self.tables = Tables(self, sparse)
        self.attach()

    # --- the leaves -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Make the leaves' accumulators store gradients here."""
        for node, store, place in zip(self.nodes, self.stores, self.places, strict=True):
            node.store, node.place = store, place

    def detach(self) -> None:
        """Give the leaves back their ordinary accumulation."""
        for node, store in zip(self.nodes, self.stores, strict=True):
            if node.store is store:
                node.store = node.place = None

    # --- buckets --------------------------------------------------------------------------------

    @property
    def buckets(self) -> tuple:
        return self.house.buckets

    @property
    def flats(self) -> list[Any]:
        return self.house.flats

    def _lay_out(self, order: Sequence[int], first: bool = False) -> None:
        """Make the buckets for gradients that come in ``order``."""
        s = self.settings
        limits = s.caps.limits()
        if first:
            limits = s.caps.compute_bucket_size_limits(self.static, s.find_unused)[0]
        align = ALIGN if self.hook is None else 1  # hooks see gradients one behind the other
        alone = self.by_rows if self.hook is None else ()
        plan = plan_buckets(self.metas, order, limits, align, alone)
        # a static graph uses the same parameters in each step: its ranks tell it in the first
        self.asks_use = s.find_unused or (self.static and not self.steps)
        self.works: list[Any] = []  # which refer to the present buckets
        self.house.lay_out(plan, self.asks_use)
        self.rows_of = {self.house.place[i]: i for i in alone}  # buckets that are one such matrix
        self.sizes = [len(b.slots) for b in self.buckets]
        count = len(self.sizes)
        self.labels = [recorder().text(f"bucket {b + 1} of {count}") for b in range(count)]
        self._reset()

    def free(self, i: int) -> None:
        """See that nobody looks into the slot of parameter ``i``, which has no gradient now: who
        has kept the last one keeps its memory, unless gradients are to be views."""
        if not self.settings.views and self.house.is_kept(i):
            self.house.let_go(i)

    def rebuild(self) -> bool:
        """Once, before the second synchronised iteration: buckets in the order in which rank 0's
        gradients came. Every rank calls it at the same time; whether it was done now."""
        if self.arrivals is None or not self.steps:
            return False
        arrivals, self.arrivals = self.arrivals, None
        if self.settings.find_unused and not self.static:
            return False
        order = np.array(list(dict.fromkeys([*arrivals, *self.order])), np.int32)
        self.group.broadcast(order, 0)
        self._lay_out(order.tolist())
        return True

    def move(self, group: ProcessGroup) -> None:
        """Average over ``group`` from now on, in buckets that are found anew."""
        self.group = self.house.group = self.messages.group = group
        self.by_rows = {i: RowSums(group) for i in self.by_rows}
        self.stats = Stats(group.size)
        self.arrivals, self.steps = [], 0
        self._lay_out(self.order, first=True)
        self.scaling.move(group)

    def register_hook(self, state: object, hook: Hook) -> None:
        """Let ``hook(state, bucket)`` reduce the buckets. Before the first backward."""
        self.hook = (hook, state)
        self._lay_out(self.order, first=True)
        self.scaling.leave_to_hook()

    def set_static(self) -> None:
        """As if made with ``static``. Before the first backward."""
        self.static = True
        self._lay_out(self.order, first=True)

    def take_over(self, i: int, leaf: Tensor, old: Tensor) -> Tensor:
        """Parameter ``i`` has a gradient already: from now on it is the slot. One that the program
        has made itself comes back with the result, unless gradients are to be views."""
        view = self.house.views[i]
        if old is not view:
            mine, theirs = (self.memory.raw(t.array) for t in (view, old))
            if not (self.settings.views or theirs is mine) and self.memory.writeable(theirs):
                self.foreign[i] = old
            leaf._grad = view
        return view

    @property
    def broken_off(self) -> bool:
        """Whether a backward began and raised in the middle."""
        return self.phase >= SYNCING and thread.walk is None

    # --- one iteration --------------------------------------------------------------------------

    def _reset(self) -> None:
        self.left = list(self.sizes)
        self.next = 0  # the bucket that is launched next
        self.fired = [0] * len(self.params)
        self.works = []
        self.unused: list[int] = []
        self.kept: dict[int, Any] = {}  # gradients as they were before
        self.foreign: dict[int, Tensor] = {}  # gradients that the program has made itself
        if self.static and self.expected is None:
            self.next = -1  # nothing, before it is known what will come

    def prepare(self, outputs: object) -> None:
        """Called after a forward that wants synchronisation: the next backward fills the
        buckets."""
        nodes, stores = self.nodes, self.stores
        if nodes and (nodes[0].store is not stores[0] or nodes[-1].store is not stores[-1]):
            self.attach()  # another wrapper of the same parameters was at work
        if self.low is None and nodes and self.params[0].array.dtype != self.metas[0].dtype:
            raise self.messages.retyped(0, self.metas[0].dtype, self.params[0].array.dtype)
        if self.phase == ARMED:
            self.older = [r for r in [*self.older, *self.roots] if r() is not None]
        self._reset()
        self.phase = ARMED
        self.roots = [weakref.ref(node) for node in nodes_of(outputs)]

    def begin(self) -> bool:
        """A gradient has come while none was being synchronised; whether it begins now."""
        if self.phase == VOID:
            return True
        lend(self)
        syncing = self._begins()
        self.scaling.count_weight(syncing)
        self.tables.begin(syncing)
        if not syncing:
            return False
        if self.phase == IDLE:
            self._reset()
        on_finish(self.memory.guarded(self.finish))
        self.stats.backward_at = self.stats.now()
        self.phase = VOID if self.scaling.is_void else SYNCING
        if self.expected is not None:
            self._fill_unused([i for i, n in enumerate(self.expected) if not n])
        elif self.settings.find_unused and not self.static:
            walk = thread.walk
            self._fill_unused([i for i, n in enumerate(self.nodes) if not walk.reaches(n)])
        return True

    def _begins(self) -> bool:
        if self.phase == IDLE:
            if not reached(self.older):
                return False
            thread.walk.vary("two forwards of DistributedDataParallel have backwards of their own")
        if thread.walk.answer(self.sync_wanted):
            return True
        if reached(self.roots):
            raise self.messages.misused()
        return False  # that forward has had no backward; this one is of another

    def again(self, i: int, array: np.ndarray) -> None:
        """Another gradient of one parameter in one backward (re-entrant checkpointing)."""
        if not self.static:
            raise self.messages.twice(i)
        expected = 0 if self.expected is None else self.expected[i]
        if self.expected is not None and self.fired[i] >= expected:
            raise self.messages.deviated(i, self.fired[i] + 1, expected)
        slot = self.house.slots[i]
        more = array * self.scaling.scales_of(slot.dtype).fresh
        np.copyto(slot, slot + more, casting="unsafe")
        self.fired[i] += 1
        if self.fired[i] == expected:
            self.ready(i)

    def ready(self, i: int) -> None:
        """The gradient of parameter ``i`` is in its slot."""
        b = self.house.place[i]
        left = self.left[b] - 1
        self.left[b] = left
        if not left and b == self.next:
            self.launch()

    def launch(self) -> None:
        """Reduce the next bucket, and those behind it that are complete."""
        flats, group, box = self.house.flats, self.group, recorder()
        last = len(flats) - 1
        if not self.next:
            self.stats.launch_at = self.stats.now()
        while self.next <= last and not self.left[self.next]:
            b = self.next
            self.next = b + 1
            box.label = self.labels[b]
            try:
                if self.hook is not None:
                    self.works.append(self._ask_hook(b))
                    continue
                if b == last:
                    self._tell()
                if group.size > 1:
                    self._reduce(b, flats[b])
            finally:
                box.label = 0

    def _reduce(self, b: int, flat: Any) -> None:
        """Start to sum bucket ``b``, which lies in ``flat``."""
        if b not in self.rows_of:
            self.works.append(self.group.all_reduce(flat, async_op=True))
            return
        i = self.rows_of[b]
        numel = self.buckets[b].numel
        grad = flat[: self.metas[i].numel].reshape(self.metas[i].shape)
        self.works.append(self.by_rows[i].start(grad))
        if flat.size > numel:
            self.works.append(self.group.all_reduce(flat[numel:], async_op=True))

    def _ask_hook(self, b: int) -> Any:
        hook, state = self.hook  # type: ignore[misc]
        bucket = self.buckets[b]
        params = [self.params[s.param] for s in bucket.slots]
        last = b == len(self.buckets) - 1
        flat = self.memory.held(self.house.gradients(b))
        future = hook(state, GradBucket(bucket, b, last, flat, params))
        if not hasattr(future, "wait"):
            raise self.messages.no_future(hook, future)
        return future

    def _tell(self) -> None:
        """Write what the other ranks must know into the tail of the last bucket."""
        flags = MISSING if self.missing else 0
        if self.scaling.total is not None:
            flags |= WEIGHTED
        rows = self.house.rows
        assert rows is not None
        waited = 0.0 if REPEATABLE_SLOT in thread.rank.slots else self.stats.last[3]
        rows.write(Row(flags, self.drift.digest(), waited, self.scaling.total or 0.0))
        if self.asks_use:
            rows.count(self._idle())

    # --- its end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """The walk is over: reduce what has not come, wait for all, see what the others say."""
        if self.next < len(self.buckets):
            self._complete()
        self.stats.wait_at = self.stats.now()
        self._wait()
        futures, self.futures = self.futures, []
        for future in futures:
            future.wait()
        if self.hook is None:
            self._listen()
        missing, self.missing = self.missing, ()
        self.phase = IDLE
        if self.older:  # forwards that this backward was not of
            self.older = [r for r in [*self.older, *self.roots] if not reached([r])]
        if missing:
            self.scaling.end()
            raise self.messages.missing_here(missing)
        if self.asks_use:
            self._count_used(self._idle())
        if self.unused:
            if not all(map(self.is_frozen, self.unused)):
                thread.walk.vary("DistributedDataParallel has parameters that this backward does "
                                 "not reach: other ranks decide over them")  # fmt: skip
            self._settle_unused()
        for i, old in self.scaling.carried.items():
            np.add(self.house.slots[i], old, out=self.house.slots[i])
        if self.low is not None:
            self._raise_precision()
        for i, own in self.foreign.items():
            np.copyto(self.memory.raw(own.array), self.house.slots[i])
            self.params[i]._grad = own
            if own._st is not None:
                own._st.version += 1
        self.tables.finish()
        self.scaling.end()
        self.steps += 1
        self.stats.end()

    def _complete(self) -> None:
        """Launch what has not been launched, so that no rank waits for this one in vain."""
        if self.static and self.expected is None:
            self.expected = list(self.fired)
            self.next = 0
            self._fill_unused([i for i, n in enumerate(self.fired) if not n])
            self.launch()
            return
        silent = [i for i, n in enumerate(self.fired) if not n or self._short(i)]
        found = below([r() for r in self.roots])
        walk, nodes = thread.walk, self.nodes
        self.missing = tuple(
            i
            for i in silent
            if not (self.is_frozen(i) or walk.reaches(nodes[i]) or nodes[i] in found)
        )
        self._fill_unused(silent)

    def _short(self, i: int) -> bool:
        return self.expected is not None and self.fired[i] < self.expected[i]

    def _wait(self) -> None:
        """Wait for all buckets; what a hook's future gives is the bucket."""
        if self.hook is None:
            for work in self.works:
                work.wait()
            return
        for b, future in enumerate(self.works):
            answer = result_of(future, self.group.timeout, self.messages.hook_result(b))
            flat = self.memory.held(self.house.gradients(b))
            fill(flat, answer, "the result of a communication hook")

    def _listen(self) -> None:
        """See what the ranks say, and finish the average where it is weighted."""
        assert self.house.rows is not None
        rows = self.house.rows.read()
        if not rows:  # they come later
            return
        flags = 0
        for row in rows:
            flags |= row.flags
        if flags & MISSING:
            mine, self.missing, self.phase = self.missing, (), IDLE
            self.scaling.end()
            raise self.messages.missing_anywhere(mine)
        if flags & WEIGHTED:
            house = self.house
            self.phase = IDLE  # also where the next line raises
            self.scaling.divide(rows, [house.gradients(b) for b in range(len(house.buckets))])
        self.stats.hear([row.waited for row in rows])
        digests = [row.digest for row in rows if not row.flags & JOINED]
        self.drift.compare(digests, self.steps)

    def _raise_precision(self) -> None:
        """Mixed precision: parameters hold their full values again, and so do gradients."""
        self.low.back()  # type: ignore[union-attr]
        left_alone = {i for i in self.unused if self.params[i]._grad is not self.house.views[i]}
        for i, p in enumerate(self.params):
            if i not in left_alone:
                p._grad = wrap(self.memory.held(self.house.slots[i].astype(self.full_types[i])))

    # --- parameters that a backward does not reach ---------------------------------------------

    def is_frozen(self, i: int) -> bool:
        """Whether parameter ``i`` was frozen after it was wrapped: it takes part with zeros, and
        keeps the ``.grad`` that it has."""
        return self.params[i]._node is None

    def _fill_unused(self, indices: Sequence[int]) -> None:
        """Parameters without gradients here still take part: with zeros, or with what they have."""
        for i in indices:
            slot = self.house.slots[i]
            grad = self.params[i]._grad
            old = None if grad is None else self.memory.raw(grad.array)
            if old is None:
                slot.fill(0)
            elif self.scaling.total is not None and i not in self.scaling.accumulated:
                self.kept[i] = self.scaling.carried[i] = old.copy()
                slot.fill(0)
            else:
                self.kept[i] = old.copy()
                common = self.scaling.scales_of(slot.dtype).common.astype(old.dtype)
                np.copyto(slot, old * common, casting="unsafe")
            self.unused.append(i)
            self.fired[i] = 1
            self.ready(i)

    def _idle(self) -> list[int]:
        """The parameters that this rank has not used since the last synchronised backward."""
        return [i for i in self.unused if i not in self.scaling.accumulated]

    def hear_late(self) -> None:
        """Before a forward: see what the others have said in earlier steps, as far as it has come
        from the device."""
        rows = self.house.rows
        missing = rows.arrived() if isinstance(rows, DeviceRows) else []
        if missing:
            self.phase = IDLE
            raise self.messages.missing_elsewhere(missing)

    def _count_used(self, idle: Collection[int]) -> None:
        """Learn what the ranks have used: from the last bucket, or by asking, where hooks reduce
        the buckets. ``idle``: what this one has not."""
        if self.hook is None:
            if not self.memory.on_host and not self.unused:
                return  # nobody asks, and to know it would be to wait
            self.used = self.house.rows.counted()  # type: ignore[union-attr]
        else:
            self.used = np.ones(len(self.params), np.int32)
            self.used[list(idle)] = 0
            self.group.all_reduce(self.used)
        if not self.settings.find_unused:
            self.used = self.used.copy()  # for all steps

    def _settle_unused(self) -> None:
        """Parameters unused here get the average, unless no rank has used them."""
        house, used = self.house, self.used
        for i in self.unused:
            p = self.params[i]
            if (used is None or used[i]) and not self.is_frozen(i):
                p._grad = house.views[i]
                continue
            self.scaling.carried.pop(i, None)
            if self.low is None and i in self.kept and p._grad is house.views[i]:
                house.slots[i][...] = self.kept[i]

    # --- for a rank that has no more input --------------------------------------------------------

    def shadow(self) -> None:
        """Take part in one iteration of the others, with zeros. Gradients here stay as they are."""
        house = self.house
        own, rows = house.flats, house.rows
        find = self.asks_use
        try:
            if self.scaling.asks_weights:
                self.group.all_reduce(np.zeros(1))
            house.flats = [house.take(b, find) for b in range(len(house.buckets))]
            self.works = []
            for b, flat in enumerate(house.flats):
                if self.hook is not None:
                    self.works.append(self._ask_hook(b))
                    continue
                if b == len(house.flats) - 1:
                    house.rows = rows.at(flat[house.buckets[b].numel :])  # type: ignore[union-attr]
                    # Nobody reads this digest, but the next one is of the slice after it.
                    house.rows.write(Row(JOINED, self.drift.digest()))
                self._reduce(b, flat)
            self._wait()
            if self.hook is None:
                self._listen()
            if find:
                self._count_used(range(len(self.params)))
            self.tables.shadow()
        finally:
            house.flats, house.rows = own, rows
        self.steps += 1
