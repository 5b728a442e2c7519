"""What a transport is: the verbs that move arrays between the ranks of one group.

To add one, make a folder beside this file with a subclass of ``Transport``, and run
``tests/comm/transports/conformance.py`` with a fixture that starts ranks over it. The contract:

* Ranks here are positions in the group, ``0 .. size-1``. ``ProcessGroup`` (the only caller) knows
  global ranks, checks arguments, and has made arrays flat: every array is 1-D, C-contiguous, and
  writable where it receives. Sizes may be 0. Element types are those of ``header.DTYPES``.
* Every verb gets a ``Call``: its fingerprint must be compared between all ranks of the group
  before data moves (``header.difference``), and a difference raises ``CollectiveMismatch`` on all
  ranks, with the texts of all calls. Afterwards the group is usable, at the next operation.
  ``ragged=True`` verbs have sizes that differ between ranks: compare each pair's.
  A transport may keep what it has prepared for a call in ``call.plan``.
* All ranks call the collectives of a group in the same order, sync or async; they take effect in
  that order. Sends and receives are matched by (source, tag) in order, apart from collectives and
  from any thread; ``ProcessGroup`` sees to it that one thread at a time calls a collective.
* With ``async_op=True`` a verb never waits for peers and returns ``Work``; arrays belong to the
  transport until that work has ended. Otherwise it returns None when it is over: inputs may be
  changed, outputs are there.
* Reductions run through ``reduce_ops.make_reducer``, by a balanced tree over the ranks: the same
  bits on every rank, in every run, for every chunk size, on every transport that can choose its
  order.
* Every wait goes through ``context.wait_until`` with ``timeout``; ``WaitTimeout`` names the ranks
  that have not arrived; a dead rank raises ``PeerFailed`` on the others. After either the group
  cannot be used any more, and further calls say so.
* A group of one runs through the same code.

A transport of devices (``nccl``) gets raw arrays of one platform in place of numpy's, as flat and
as contiguous, and differs in what "over" means: a verb only enqueues work on the device, and what
comes later in the caller's current stream waits for it, as in PyTorch. ``placed`` chooses between a
group's transports by where an array lies.

This file knows numpy arrays; no shared memory, no sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ...context import DEFAULT_TIMEOUT
from ...errors import CommError
from .header import Call
from .reduce_ops import ReduceOp, make_reducer
from .work import Work

Swap = Callable[[np.ndarray], np.ndarray]


class Transport(ABC):
    """The verbs of one group, seen from one of its ranks."""

    kind = "abstract"
    shares = False  # whether ``share`` gives memory
    divides = True  # whether groups of some of its ranks can be split off from it by name
    hears = True  # whether it brings what other ranks say; one without peers does not
    sealed = False  # whether what leaves this host is encrypted
    leads = False  # of devices: whether barriers of the group are its affair
    # (the backend's name, the CPU's transport, a platform) -> what moves the platform's arrays
    # beside it; None: they go by way of the host
    between: Callable[[str, Transport, Any], Transport] | None = None
    adopted: dict[Any, Any] | None = None  # what devices' transports beside it shall begin with
    group_type: Any = None  # the class of a group on it, where that is not the usual one
    job: Any = (
        None  # after ``shrink``: what the ranks that are left have of their launcher's segment
    )

    def __init__(
        self, rank: int, size: int, name: str, timeout: float = DEFAULT_TIMEOUT, epoch: int = 0
    ) -> None:
        """``epoch``: how often the job was restarted; part of every header."""
        self.rank, self.size, self.name = rank, size, name
        self.timeout, self.epoch = timeout, epoch
        self.group: Callable[[], Any] = lambda: None  # a weak reference to whom it moves data for

    def allocate(self, nbytes: int) -> np.ndarray:
        """uint8 memory which this transport moves best (shared, pinned ...); freed by its last
        view."""
        return np.empty(nbytes, np.uint8)

    def share(self, call: Call, nbytes: int) -> Any:
        """Memory that all ranks of the group see (a ``shared.Shared``), as large on every rank;
        None where a transport has none. All ranks call it."""
        return None

    @abstractmethod
    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        """Nobody goes on before everybody has come."""

    @abstractmethod
    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        """``array`` of the root into ``array`` of the others."""

    @abstractmethod
    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        """Reduce in place: every rank gets the result."""

    def all_reduce_each(
        self, calls: Sequence[Call], arrays: Sequence[np.ndarray], op: ReduceOp
    ) -> int:
        """Reduce the first of ``arrays`` in place, or all of them at once where every rank calls it
        so; how many it was. Peers may do them one by one."""
        self.all_reduce(calls[0], arrays[0], op)
        return 1

    @abstractmethod
    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        """``outs[r]`` becomes rank r's ``array``. ``array`` may be ``outs[rank]`` itself."""

    @abstractmethod
    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        """``out`` becomes the reduction of all ranks' ``ins[rank]``; it may be ``ins[rank]``.

        The sizes of ``ins`` may differ from each other, not between ranks. All but one may be 0:
        that is how ``reduce`` to a root comes here.
        """

    @abstractmethod
    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        """``outs[r]`` becomes rank r's ``ins[rank]``. No ``ins`` overlaps an ``outs``.

        Without ``ragged`` all pieces have one size. ``gather`` and ``scatter`` come here too.
        """

    @abstractmethod
    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        """Send to ``dst``. Its work ends when ``array`` may be changed again."""

    @abstractmethod
    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        """Receive from ``src`` (None: whoever comes first). The work's result is the source.

        A message whose dtype or shape differs raises ``CollectiveMismatch`` here, and at the
        sender while it still waits or when it next sends to this rank.
        """

    @abstractmethod
    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> Transport | None:
        """A transport for some of the ranks, in that order. Every rank of this one calls it;
        who is in no group gives None and gets None. Several groups may be made at once.

        With ``swap`` only the members call it. ``swap(row)`` gives the rows (int64, of one length)
        of all members, in their order."""

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[Transport, list[int]]:
        """For a default group: agree with all ranks that live on who they are, and connect them
        anew: (the transport of all of them, which rank each was before). ``exclude``: ranks that
        all others go on without, whether they live or not. Raises ``WaitTimeout`` naming who has
        neither come nor ended. All groups of before are over."""
        raise CommError(
            f"shrink: the {self.kind} transport cannot go on without a rank that has failed; "
            "restart the job (dtrun --max-restarts), or use shared memory"
        )

    def together(self) -> AbstractContextManager[None]:
        """Within it operations on arrays of devices are only collected; they are started together
        at its end, so that messages need no order among each other."""
        return nullcontext()

    def bind(self, index: int) -> None:  # noqa: B027
        """Of devices: connect now, this rank on device ``index``. All ranks come."""

    def divide(  # noqa: B027
        self, cpu: Transport | None, members: Sequence[int] | None, name: str
    ) -> None:
        """Of devices: groups of some ranks were split off; ``cpu`` is the CPU's transport of this
        rank's. All ranks come here."""

    def abandon(self) -> None:  # noqa: B027
        """The group is over, and nobody will close it."""

    def shrunk(  # noqa: B027
        self, cpu: Transport, before: Sequence[int]
    ) -> None:
        """Of devices: the ranks ``before`` go on on ``cpu``; all of them come here."""

    @abstractmethod
    def close(self, call: Call | None) -> None:
        """Give everything back. With a call, first meet all ranks (a rank that has made fewer
        calls than the others is found here); without, leave at once."""


class HostTransport(Transport):
    """What transports of arrays on the host share: whether they can still be used, and reducers."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._reducers: dict[tuple, Any] = {}
        self._broken = ""

    def disable(self, why: str) -> None:
        """Further calls say that the group cannot be used any more, since ``why``."""
        self._broken = self._broken or why

    def _usable(self) -> None:
        if self._broken:
            raise CommError(
                f"group {self.name}: cannot be used any more, since {self._broken}. "
                "Make a new group, or restart the job."
            )

    def _break(self, error: BaseException) -> None:
        self.disable(f"an operation ended in the middle ({type(error).__name__})")

    def _reducer(self, op: ReduceOp, dtype: np.dtype) -> Any:
        """One reducer (and its scratch memory) per operator and type."""
        key = (op, dtype.num)
        if key not in self._reducers:
            if len(self._reducers) >= 64:  # scaled sums with ever new factors
                self._reducers.clear()
            self._reducers[key] = make_reducer(op, dtype, self.size)
        return self._reducers[key]
