"""What ranks of every group send and receive, and the batches that loaders give.

While any rank of the process records, functions of this file stand in for the verbs of all groups,
the ends of loaders and the call of compiled functions. They ask whether the calling rank records;
when none does, the classes are as they were.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import context
from ..comm.calls.work import Work
from ..comm.group.group import ProcessGroup
from ..compile.compiled import Compiled
from ..data import loader
from ..data.position import Position
from ..stand_ins import StandIns
from ..trace import logger
from . import rows
from .recorder import Recorder, active, text_hash
from .rows import Measure
from .values import array_of, measure, mixed, shape_text, tensors


class _Verb(NamedTuple):
    """Where a verb has what a rank gives, and what it gets: place and name of the argument."""

    given: tuple[int, str] | None
    got: tuple[int, str] | None


_SAME = _Verb((0, "array"), (0, "array"))
_INTO = _Verb((1, "array"), (0, "out"))
VERBS = {
    "all_reduce": _SAME, "reduce": _SAME, "broadcast": _SAME,
    "all_gather": _Verb((1, "array"), (0, "outs")), "all_gather_single": _INTO,
    "reduce_scatter": _Verb((1, "ins"), (0, "out")), "reduce_scatter_single": _INTO,
    "all_to_all": _Verb((1, "ins"), (0, "outs")), "all_to_all_single": _INTO,
    "gather": _Verb((0, "array"), (1, "outs")), "scatter": _Verb((1, "ins"), (0, "out")),
    "barrier": _Verb(None, None), "isend": _Verb((0, "array"), None),
    "irecv": _Verb(None, (0, "array")),
}  # fmt: skip
_SHOWN = ("op", "root", "dst", "src", "tag")
_PLACES = {"all_reduce": {1: "op"}, "reduce": {1: "root", 2: "op"}, "broadcast": {1: "root"},
           "reduce_scatter": {2: "op"}, "reduce_scatter_single": {2: "op"}, "gather": {2: "root"},
           "scatter": {2: "root"}, "isend": {1: "dst", 2: "tag"},
           "irecv": {1: "src", 2: "tag"}}  # fmt: skip


def _set_up(places: StandIns) -> None:
    for name, verb in VERBS.items():
        places.put(ProcessGroup, name, functools.partial(_verb, name, verb))
    places.put(Position, "opened", _opened)
    for kind in (loader._LocalIterator, loader._WorkerIterator):
        places.put(kind, "__next__", _next)
    places.put(Compiled, "__call__", _as_program)


STAND_INS = StandIns(_set_up)  # of all ranks of the process that record


# --- groups ---------------------------------------------------------------------------------------


def _verb(name: str, verb: _Verb, own: Callable[..., Any]) -> Callable[..., Any]:
    def stand(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is None:
            return own(self, *args, **kwargs)
        about = _header(to, self, name, args, kwargs)
        given = _argument(verb.given, args, kwargs)
        unread = name == "broadcast" and _root(args, kwargs) != self.rank
        _given(to, name, about, given, unread)
        work = own(self, *args, **kwargs)
        got = _argument(verb.got, args, kwargs)
        if got is not None:
            end = functools.partial(_got, to, name, about, got, self, (to.module, to.phase))
            if isinstance(work, Work):
                work.on_end(end)
            else:
                end(None)
        return work

    return stand


def _header(to: Recorder, group: ProcessGroup, name: str, args: tuple, kwargs: dict) -> str:
    """The header of a call as it is shown, with its number in the group."""
    key = f"{group.name} {name}" if name in ("isend", "irecv") else group.name
    number = to.numbers[key] = to.numbers.get(key, 0) + 1
    told = {_PLACES.get(name, {}).get(i): a for i, a in enumerate(args)}
    told.update({k: v for k, v in kwargs.items() if k in _SHOWN})
    said = "".join(f"{k}={v} " for k, v in told.items() if k is not None)
    ranks = ",".join(map(str, group.ranks))
    return f"{said}call {number} of group {group.name} (ranks {ranks})"


def _argument(place: tuple[int, str] | None, args: tuple, kwargs: dict) -> Any:
    if place is None:
        return None
    return args[place[0]] if len(args) > place[0] else kwargs.get(place[1])


def _measured(value: Any) -> tuple[Measure, str]:
    """Of one array, or of several as one."""
    if not isinstance(value, (list, tuple)):
        return measure(value), shape_text(value)
    found = [measure(a) for a in value]
    if not found:
        return rows.NOTHING, ""
    total = Measure(
        mixed(*[f.hash for f in found]), min(f.low for f in found), max(f.high for f in found),
        sum(f.squares for f in found), sum(f.nans for f in found),
        sum(f.sketch for f in found), 0,
        sum(f.numel for f in found), 0,
    )  # fmt: skip
    return total, f"{len(found)} x {shape_text(value[0])}"


def _root(args: tuple, kwargs: dict) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("root")


def _given(to: Recorder, name: str, about: str, given: Any, unread: bool) -> None:
    """``unread``: what lies in the array does not matter, and may be what was there before."""
    if context.thread.unrepeatable:
        found, shape = rows.NOTHING, ""
    elif unread:
        found, shape = rows.NOTHING, shape_text(given)
    else:
        found, shape = (rows.NOTHING, "") if given is None else _measured(given)
    to.put(rows.COLLECTIVE, name, found, to.writer.text(shape), site=to.sites.here(), about=about)
    to.writer.flush_soon()


def _got(
    to: Recorder, name: str, about: str, got: Any, group: ProcessGroup, where: tuple[int, int],
    work: Any,
) -> None:  # fmt: skip
    """A call has ended, with what it has brought."""
    if work is not None:
        if work.exception() is not None:
            return
        if name == "irecv" and isinstance(work._result, int):
            about = f"from rank {group.ranks[work._result]} {about}"
    found, shape = (rows.NOTHING, "") if context.thread.unrepeatable else _measured(got)
    to.put(
        rows.RECEIVED,
        name,
        found,
        to.writer.text(shape),
        module=where[0],
        phase=where[1],
        about=about,
    )


# --- loaders --------------------------------------------------------------------------------------


def _opened(own: Callable[..., Iterator]) -> Callable[..., Iterator]:
    def opened(self: Position, requests: object) -> Iterator:
        asked: deque = deque(maxlen=1 << 12)
        self.__dict__["_asked"] = asked
        return _noted(own(self, requests), asked)

    return opened


def _noted(requests: Iterator, asked: deque) -> Iterator:
    for ids in requests:
        asked.append(ids)
        yield ids


def _next(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def following(self: Any) -> Any:
        value = own(self)
        position = self.__dict__.get("_position", self.__dict__.get("position"))
        asked = position.__dict__.get("_asked")
        ids = asked.popleft() if asked else None
        to = active()
        if to is not None:
            _batch(to, ids, value)
        return value

    return following


def _batch(to: Recorder, ids: Any, value: object) -> None:
    """A batch, and the numbers of its samples."""
    numbers = [] if ids is None else np.asarray(ids).reshape(-1).tolist()
    shown = " ".join(map(str, numbers[:16])) + (" ..." if len(numbers) > 16 else "")
    about = f"samples {shown}" if numbers else ""
    if numbers:
        to.put(rows.DATA, "sample ids", Measure(text_hash(repr(numbers))), module=0,
               about=about)  # fmt: skip
    for i, t in enumerate(tensors(value)):
        array = array_of(t)
        to.put(rows.DATA, f"batch {i}" if i else "batch", measure(array), to.shape(array),
               module=0, about=about)  # fmt: skip


# --- compiled functions ---------------------------------------------------------------------------


def _as_program(own: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Compiled, *args: Any, **kwargs: Any) -> Any:
        to = active()
        if to is None:
            return own(self, *args, **kwargs)
        if not to.told:
            to.told = True
            logger(__package__).warning(
                "record: compiled functions run as the program that they were made from, so that "
                "nothing is left out"
            )
        return self.fn(*args, **kwargs)

    return call
