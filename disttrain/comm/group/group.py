"""A process group: the collectives on numpy arrays that users and upper layers call.

It checks arguments, makes arrays flat, names the calling line, and maps group ranks to global ones;
the data is moved by a ``Transport``. ``root``, ``dst`` and ``src`` are ranks *in the group*
(``group.ranks[i]`` is the global rank of member i, ``group_rank`` the way back).

All verbs work in place on the arrays they are given. With ``async_op=True`` they return ``Work``
at once, and the arrays belong to the operation until it has ended.

Ranks must make the same calls: the same verb, element type, number of elements, operator and root.
The lines they call from and the shapes may differ; a ``strict`` group wants these to be equal, too.

Threads take turns with collectives (checked, see ``Calls``), not with messages. Knows no tensors.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from ...errors import ConfigError, ShapeError
from ..calls.count import Count
from ..calls.headers import Calls
from ..calls.reduce_ops import ReduceOp
from ..calls.transport import Transport
from ..calls.work import Together, Work
from ..job.worker_env import strict_wanted
from . import arguments as check
from . import coalesced
from . import monitored_barrier as monitored
from . import split as dividing
from .device_setup import is_device_array, joined, together


class ProcessGroup:
    """Ranks that make the same calls. ``ranks``: global rank of each member."""

    def __init__(
        self,
        transport: Transport,
        ranks: Sequence[int] | None = None,
        strict: bool | None = None,
        backend: str = "undefined",
    ) -> None:
        """``strict`` (alike on all members): lines and shapes must agree, too. None: what the
        environment or the simulation says. ``backend``: what the program called it."""
        self.backend = backend
        self.ranks = list(range(transport.size)) if ranks is None else list(ranks)
        self.rank, self.size = Count(transport.rank), Count(transport.size)
        self.name = transport.name
        self.strict = strict_wanted() if strict is None else strict
        self._calls = Calls(self.name, transport.epoch, self.rank, self.ranks, self.strict)
        self._num_barriers = 0
        self._made = dividing.Made()
        transport.group = weakref.ref(self)
        self.transport: Transport = joined(self, transport)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.name!r}, rank {self.rank} of {self.size})"

    @property
    def timeout(self) -> float:
        """Seconds after which a wait of this group raises ``WaitTimeout``."""
        return self.transport.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.transport.timeout = seconds

    def group_rank(self, global_rank: int) -> int:
        """The rank in this group of a global rank."""
        try:
            return self.ranks.index(global_rank)
        except ValueError:
            raise ConfigError(
                f"group {self.name}: rank {global_rank} was given; needed is a member "
                f"({', '.join(map(str, self.ranks))})."
            ) from None

    def empty(self, shape: Sequence[int] | int, dtype: Any = np.float32) -> np.ndarray:
        """An uninitialized array in memory from which this group moves data without copies."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for n in shape:
            count *= n
        raw = self.transport.allocate(count * dtype.itemsize)
        return raw[: count * dtype.itemsize].view(dtype).reshape(shape)

    def labelled(self, verb: str, array: Any, op: Any, label: tuple, shown: str) -> Any:
        """The header of a call on ``array`` in which ``label`` must agree between ranks."""
        shown_of = (("of", shown),)
        return self._calls.get(verb, array, op=op, sizes=label, shown=shown_of, begins=False)[0]

    def begin(self, call: Any) -> int:
        """A call that ``labelled`` has given begins; ``ended`` is told what is returned."""
        return self._calls.begin(call)

    def ended(self, begun: int, work: Work | None) -> Work | None:
        """It has ended, or does so with ``work``, which is returned."""
        return self._calls.ended(begun, work)

    # -- collectives --------------------------------------------------------------------------

    def all_reduce(
        self,
        array: np.ndarray,
        op: ReduceOp = ReduceOp.SUM,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """Reduce ``array`` over all ranks, in place, in a fixed order. The work's result is it."""
        flat = check.flat("all_reduce", array, write=True)
        call, begun = self._calls.get("all_reduce", array, op=op)
        work = self.transport.all_reduce(call, flat, op, async_op=async_op)
        if work is None and flat is array:
            self._calls.box.end(begun)
            return None
        return self._back(begun, work, [(array, flat)], array)

    def reduce(
        self,
        array: np.ndarray,
        root: int,
        op: ReduceOp = ReduceOp.SUM,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """Reduce into ``array`` of ``root``; the others' arrays keep their values."""
        check.member("reduce", "root", root, self.size)
        flat = check.flat("reduce", array, write=self.rank == root)
        call, begun = self._calls.get("reduce", array, op=op, root=root)
        none = flat[:0]
        ins = [flat if i == root else none for i in range(self.size)]
        work = self.transport.reduce_scatter(call, ins[self.rank], ins, op, async_op=async_op)
        return self._back(begun, work, [(array, flat)] if self.rank == root else [], array)

    def broadcast(self, array: np.ndarray, root: int, *, async_op: bool = False) -> Work | None:
        """Copy ``array`` of ``root`` into ``array`` of the others."""
        check.member("broadcast", "root", root, self.size)
        flat = check.flat("broadcast", array, write=self.rank != root)
        call, begun = self._calls.get("broadcast", array, root=root)
        work = self.transport.broadcast(call, flat, root, async_op=async_op)
        return self._back(begun, work, [(array, flat)] if self.rank != root else [], array)

    def all_gather(
        self,
        outs: Sequence[np.ndarray],
        array: np.ndarray,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``outs[r]`` becomes rank r's ``array``. Shapes may differ between ranks, when every
        rank gives them alike."""
        check.per_rank("all_gather", "outs", outs, self.size)
        flat = check.flat("all_gather", array)
        flats = check.outputs("all_gather", outs, array.dtype)
        check.fit("all_gather", f"outs[{self.rank}]", outs[self.rank], array.shape)
        sizes = tuple([out.size for out in outs])
        if sizes.count(array.size) == self.size:
            call, begun = self._calls.get("all_gather", array)
        else:
            call, begun = self._calls.get("all_gather", array, sizes=sizes)
        [flat] = check.apart([flat], flats, (flat, flats[self.rank]))
        work = self.transport.all_gather(call, flats, flat, async_op=async_op)
        return self._back(begun, work, list(zip(outs, flats, strict=True)), outs)

    def all_gather_single(
        self,
        out: np.ndarray,
        array: np.ndarray,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``out`` (size x as many elements) becomes all ranks' ``array`` one behind the other."""
        flat = check.flat("all_gather_single", array)
        into = check.flat("all_gather_single", out, write=True)
        check.same_dtype("all_gather_single", "out", out, array.dtype)
        n = array.size
        if out.size != n * self.size:
            raise ShapeError(
                f"all_gather_single: out with {out.size} elements was given; needed are "
                f"{n * self.size} ({self.size} ranks x {n} elements of array)."
            )
        call, begun = self._calls.get("all_gather", array)
        outs = [into[i * n : (i + 1) * n] for i in range(self.size)]
        [flat] = check.apart([flat], outs, (flat, outs[self.rank]))
        work = self.transport.all_gather(call, outs, flat, async_op=async_op)
        return self._back(begun, work, [(out, into)], out)

    def reduce_scatter(
        self,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp = ReduceOp.SUM,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``out`` becomes the reduction of all ranks' ``ins[rank]``."""
        check.per_rank("reduce_scatter", "ins", ins, self.size)
        into = check.flat("reduce_scatter", out, write=True)
        flats = [check.flat("reduce_scatter", a) for a in ins]
        for i, a in enumerate(ins):
            check.same_dtype("reduce_scatter", f"ins[{i}]", a, out.dtype)
        check.fit("reduce_scatter", "out", out, ins[self.rank].shape)
        sizes = tuple([a.size for a in ins])
        call, begun = self._calls.get("reduce_scatter", out, op=op, sizes=sizes)
        flats = check.apart(flats, (into,), (flats[self.rank], into))
        work = self.transport.reduce_scatter(call, into, flats, op, async_op=async_op)
        return self._back(begun, work, [(out, into)], out)

    def reduce_scatter_single(
        self,
        out: np.ndarray,
        array: np.ndarray,
        op: ReduceOp = ReduceOp.SUM,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``out`` becomes this rank's part (of ``size`` equal ones) of the reduced ``array``."""
        into = check.flat("reduce_scatter_single", out, write=True)
        flat = check.flat("reduce_scatter_single", array)
        check.same_dtype("reduce_scatter_single", "array", array, out.dtype)
        n = out.size
        if array.size != n * self.size:
            raise ShapeError(
                f"reduce_scatter_single: array with {array.size} elements was given; needed are "
                f"{n * self.size} ({self.size} ranks x {n} elements of out). Pad it."
            )
        call, begun = self._calls.get("reduce_scatter", array, op=op)
        ins = [flat[i * n : (i + 1) * n] for i in range(self.size)]
        ins = check.apart(ins, (into,), (ins[self.rank], into))
        work = self.transport.reduce_scatter(call, into, ins, op, async_op=async_op)
        return self._back(begun, work, [(out, into)], out)

    def all_to_all(
        self,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``outs[r]`` becomes rank r's ``ins[rank]``; sizes may differ from pair to pair."""
        check.per_rank("all_to_all", "ins", ins, self.size)
        check.per_rank("all_to_all", "outs", outs, self.size)
        flats = [check.flat("all_to_all", a) for a in ins]
        for i, a in enumerate(ins):
            check.same_dtype("all_to_all", f"ins[{i}]", a, ins[0].dtype)
        into = check.outputs("all_to_all", outs, ins[0].dtype)
        shapes = tuple([a.shape for a in ins])
        flats = check.apart(flats, into, (flats[self.rank], into[self.rank]))
        call, begun = self._calls.get("all_to_all", ins[0], ragged=True, shown=shapes)
        work = self.transport.all_to_all(call, into, flats, ragged=True, async_op=async_op)
        return self._back(begun, work, list(zip(outs, into, strict=True)), outs)

    def all_to_all_single(
        self,
        out: np.ndarray,
        array: np.ndarray,
        out_splits: Sequence[int] | None = None,
        in_splits: Sequence[int] | None = None,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """Send rows of ``array`` to all ranks and receive rows into ``out`` (along dimension 0).

        ``in_splits[r]`` rows go to rank r, ``out_splits[r]`` come from it; equal parts without.
        Give splits on all ranks or on none.
        """
        verb = "all_to_all_single"
        flat, into = check.flat(verb, array), check.flat(verb, out, write=True)
        check.same_dtype(verb, "out", out, array.dtype)
        ragged = out_splits is not None or in_splits is not None
        ins = check.pieces(verb, "array", array, flat, in_splits, self.size)
        outs = check.pieces(verb, "out", out, into, out_splits, self.size)
        if ragged:
            shown = (tuple([a.size for a in ins]), tuple([a.size for a in outs]))
            call, begun = self._calls.get("all_to_all", array, ragged=True, shown=shown)
        else:
            check.fit(verb, "out", out, array.shape)
            call, begun = self._calls.get("all_to_all", array)
        if np.may_share_memory(into, flat):
            ins = check.apart(ins, outs, (ins[self.rank], outs[self.rank]))
        work = self.transport.all_to_all(call, outs, ins, ragged=ragged, async_op=async_op)
        return self._back(begun, work, [(out, into)], out)

    def gather(
        self,
        array: np.ndarray,
        outs: Sequence[np.ndarray] | None,
        root: int,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``outs[r]`` of ``root`` becomes rank r's ``array``. The others give ``outs=None``."""
        check.member("gather", "root", root, self.size)
        flat = check.flat("gather", array)
        none = flat[:0]
        into, back = [none] * self.size, []
        if self.rank == root:
            outs = check.per_rank("gather", "outs", outs, self.size, "on the root")
            into = check.outputs("gather", outs, array.dtype)
            [flat] = check.apart([flat], into, (flat, into[root]))
            back = list(zip(outs, into, strict=True))
        call, begun = self._calls.get("gather", array, root=root, ragged=True)
        ins = [flat if i == root else none for i in range(self.size)]
        work = self.transport.all_to_all(call, into, ins, ragged=True, async_op=async_op)
        return self._back(begun, work, back, outs)

    def scatter(
        self,
        out: np.ndarray,
        ins: Sequence[np.ndarray] | None,
        root: int,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``out`` becomes ``ins[rank]`` of ``root``. The others give ``ins=None``."""
        check.member("scatter", "root", root, self.size)
        into = check.flat("scatter", out, write=True)
        none = into[:0]
        flats = [none] * self.size
        if self.rank == root:
            ins = check.per_rank("scatter", "ins", ins, self.size, "on the root")
            flats = [check.flat("scatter", a) for a in ins]
            for i, a in enumerate(ins):
                check.same_dtype("scatter", f"ins[{i}]", a, out.dtype)
            flats = check.apart(flats, (into,), (flats[root], into))
        call, begun = self._calls.get("scatter", out, root=root, ragged=True)
        outs = [into if i == root else none for i in range(self.size)]
        work = self.transport.all_to_all(call, outs, flats, ragged=True, async_op=async_op)
        return self._back(begun, work, [(out, into)], out)

    def barrier(self, *, async_op: bool = False) -> Work | None:
        """Wait until every rank has come."""
        call, begun = self._calls.get("barrier", None)
        return self._calls.ended(begun, self.transport.barrier(call, async_op=async_op))

    def all_reduce_coalesced(
        self, arrays: Sequence[np.ndarray], op: ReduceOp = ReduceOp.SUM, *, async_op: bool = False
    ) -> Work | None:
        """``all_reduce`` of several arrays, those of one type in one operation."""
        verb = functools.partial(ProcessGroup.all_reduce, self)
        if arrays and is_device_array(arrays[0]):
            with together(self, arrays[0]):
                works = [verb(a, op, async_op=True) for a in arrays]
            return self._together(works, async_op)
        return self._together(coalesced.all_reduce(verb, arrays, op), async_op)

    def all_reduce_each(self, arrays: Sequence[np.ndarray], op: ReduceOp = ReduceOp.SUM) -> None:
        """``all_reduce`` of ``arrays`` of one type, one after the other, with the same bits; in one
        message where all ranks call it so and the transport can. Others may call them one by one.
        """
        flats = [check.flat("all_reduce", a, write=True) for a in arrays]
        calls = [self._calls.get("all_reduce", a, op=op, begins=False)[0] for a in arrays]
        done = 0
        if all(np.may_share_memory(a, f) for a, f in zip(arrays, flats, strict=True)):
            begun = self._calls.begin(calls[0])
            done = self.transport.all_reduce_each(calls, flats, op)
            self._calls.box.end(begun)
        for call in calls[1:done]:
            self._calls.box.end(self._calls.begin(call))
        for array in arrays[done:]:
            ProcessGroup.all_reduce(self, array, op)

    def all_gather_coalesced(
        self,
        outs: Sequence[Sequence[np.ndarray]],
        arrays: Sequence[np.ndarray],
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``outs[r][i]`` becomes rank r's ``arrays[i]``, those of one type in one operation."""
        verb = functools.partial(ProcessGroup.all_gather, self)
        if arrays and is_device_array(arrays[0]):
            with together(self, arrays[0]):
                works = [
                    verb([row[i] for row in outs], a, async_op=True) for i, a in enumerate(arrays)
                ]
            return self._together(works, async_op)
        return self._together(coalesced.all_gather(verb, outs, arrays), async_op)

    def _together(self, works: list[Any], async_op: bool) -> Work | None:
        work = Together(works)
        if async_op:
            return work
        work.wait()
        return None

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose ``WaitTimeout`` names the ranks that did not come (the first one, with
        ``wait_all_ranks`` all of them). ``timeout``: seconds or a timedelta."""
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        number, self._num_barriers = self._num_barriers, self._num_barriers + 1
        limit = self.timeout if seconds is None else float(seconds)
        monitored.barrier(self, number, limit, wait_all_ranks)

    # -- point to point -----------------------------------------------------------------------

    def send(self, array: np.ndarray, dst: int, tag: int = 0) -> None:
        """Send ``array`` to ``dst``; returns when it may be changed again.

        Messages of one pair and tag arrive in order. A message that lies in shared memory
        (``empty``) is read where it lies, so the send lasts until it was received; others are
        copied, so it does not.
        """
        self.isend(array, dst, tag).wait()

    def recv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> int:
        """Receive into ``array`` from ``src`` (None: from whoever comes first); the source."""
        return self.irecv(array, src, tag).wait()

    def isend(self, array: np.ndarray, dst: int, tag: int = 0) -> Work:
        """Start a send."""
        check.member("send", "dst", dst, self.size)
        check.tag(tag)
        flat = check.flat("send", array)
        call, begun = self._calls.get("send", array, shown=(("dst", dst), ("tag", tag)))
        work = self.transport.send(call, flat, dst, tag)
        self._calls.ended(begun, work)
        return work

    def irecv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> Work:
        """Start a receive; the work's result is the source."""
        if src is not None:
            check.member("recv", "src", src, self.size)
        check.tag(tag)
        flat = check.flat("recv", array, write=True)
        call, begun = self._calls.get("recv", array, shown=(("src", src), ("tag", tag)))
        work = self.transport.recv(call, flat, src, tag)
        self._calls.ended(begun, work)
        if np.may_share_memory(flat, array):
            return work
        return work.then(lambda source: check.copy_back([(array, flat)], source))

    def batch(self, messages: Sequence[Callable[[], Work]]) -> Work:
        """Start several sends and receives (``functools.partial(group.isend, ...)``) together."""
        first = getattr(messages[0], "args", ()) if messages else ()
        with together(self, first[0] if first else None):
            works = [start() for start in messages]
        return Together(works)

    # -- groups -------------------------------------------------------------------------------

    def split(
        self, color: int | None, key: int = 0, members: Sequence[int] | None = None
    ) -> Self | None:
        """Divide this group: ranks of one ``color`` become a group, in order of ``key``, then rank.

        Every rank calls it; with ``color=None`` a rank joins no group and gets None. ``members``:
        of this rank's new group, where the caller knows them: what a rank without peers goes by.
        """
        return dividing.by_color(self, color, key, members)

    def new_group(
        self,
        ranks: Sequence[int],
        *,
        timeout: float | None = None,
        strict: bool | None = None,
        members_only: bool = False,
    ) -> Self | None:
        """A group of the members ``ranks`` (of this group), in that order.

        Every rank of this group calls it; who is not in its list gets None. Lists may differ as
        long as all members of a list give it. With ``members_only`` the others need not call.
        ``strict``: see ``__init__``; None: as this group.
        """
        group = dividing.of_ranks(self, ranks, strict, members_only)
        if group is not None and timeout is not None:
            group.timeout = timeout
        return group

    def close(self, abort: bool | None = None) -> None:
        """Leave the group. All ranks meet here once more, so that one which has made fewer calls
        is found; with ``abort`` (default: while an exception is being handled) they do not."""
        if abort is None:
            abort = sys.exc_info()[0] is not None
        if abort:
            self.transport.close(None)
            return
        call, begun = self._calls.get("close", None)
        self.transport.close(call)
        self._calls.box.end(begun)

    def _back(
        self, begun: int, work: Work | None, pairs: list[tuple], result: object
    ) -> Work | None:
        """Where an output had to be copied to be flat, copy it back when the work has ended."""
        self._calls.ended(begun, work)
        copied = [(a, f) for a, f in pairs if f is not a and not np.may_share_memory(a, f)]
        if work is None:
            check.copy_back(copied, result)
            return None
        return work.then(lambda _: check.copy_back(copied, result))
