"""While a rank records for a replay: what its transports, stores and messages bring goes into its
log, in the order in which it comes.

Functions of this file stand in for the methods of the transports that the rank connects, and for
those of stores; each notes a call before it begins and what it has brought when it has ended. Of
what the rank gives there is only a hash. Other ranks are not concerned.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from ... import context
from ...comm.calls.work import Work
from ...comm.store import FileStore, TCPStore
from ...comm.transports import selection
from ...rpc.calls import endpoints
from ...rpc.messages.contract.endpoint import Endpoint
from ...rpc.messages.contract.message import Message
from ...stand_ins import StandIns
from .faults import as_data
from .frames import LogWriter, Meta, Parts
from .movements import VERBS, Moved, hash_of

SLOT = "record.keeper"  # of a rank's context
_BETWEEN = ("context.py", "core/random.py")


class _Local(threading.local):
    depth = 0  # inside of how many calls that are kept


class Keeper:
    """What one rank keeps."""

    def __init__(self, log: LogWriter) -> None:
        self.log, self.local = log, _Local()
        self._main = threading.get_ident()
        self._own_turns: set[int] = set()  # which shared memory was opened itself
        self._works: dict[int, int] = {}  # works that have not ended, and their calls

    @property
    def aside(self) -> bool:
        """Whether what is called now is a part of what is kept already."""
        return self.local.depth > 0 or not self.log.open

    def call(self, key: str, verb: str, **more: Any) -> int:
        """A call begins: its number."""
        main = threading.get_ident() == self._main
        return self.log.put({"k": "call", "key": key, "verb": verb, "main": main, **more})

    def end(self, of: int, result: Any = None, parts: Parts = (), late: bool = False) -> None:
        """A call has ended; ``late``: as a work."""
        meta: Meta = {"k": "end", "of": of, "late": late}
        if result is not None:
            meta["result"] = result
        self.log.put(meta, parts)

    def failed(self, of: int, error: BaseException, late: bool = False) -> None:
        """It has raised."""
        self.log.put({"k": "end", "of": of, "late": late, "error": as_data(error)})

    def within(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``fn``, of which nothing is kept."""
        self.local.depth += 1
        try:
            return fn(*args, **kwargs)
        finally:
            self.local.depth -= 1

    def noted(self, number: int, fn: Callable[[], Any]) -> Any:
        """The result of call ``number``; what it raises is noted."""
        try:
            return self.within(fn)
        except BaseException as error:
            self.failed(number, error)
            raise

    # -- transports ----------------------------------------------------------------------------

    def transport(self, t: Any) -> Any:
        """``t``, of which all is kept from now on."""
        for verb in VERBS:
            setattr(t, verb, functools.partial(self._verb, verb, t, getattr(t, verb)))
        for name in ("all_reduce_each", "split", "share", "shrink", "close"):
            setattr(t, name, functools.partial(getattr(self, f"_{name}"), t, getattr(t, name)))
        return t

    def _verb(self, verb: str, t: Any, own: Callable, call: Any, *args: Any, **how: Any) -> Any:
        if self.aside:
            return own(call, *args, **how)
        moved = VERBS[verb](t.rank, *args)
        if not _on_host(moved):
            return own(call, *args, **how)
        n = self.call(f"{t.name} {moved.key}".strip(), call.op if verb != "recv" else "recv",
                      tail=call.tail.hex(), text=call.text, given=hash_of(moved.given))  # fmt: skip
        work = self.noted(n, lambda: own(call, *args, **how))
        if isinstance(work, Work):
            self._works[id(work)] = n
            work.on_end(functools.partial(self._ended, n, verb, moved))
        else:
            self.end(n, None, self.log.buffers.copies(moved.got))
        return work

    def _ended(self, n: int, verb: str, moved: Moved, work: Work) -> None:
        self._works.pop(id(work), None)
        error = work.exception()
        if error is not None:
            self.failed(n, error, True)
            return
        source = work._result if verb == "recv" else None
        self.end(n, source, self.log.buffers.copies(moved.got), True)

    def waited(self, work: Any, error: BaseException) -> None:
        """A wait for ``work`` was given up, which has not ended."""
        while work is not None and id(work) not in self._works:
            work = getattr(work, "_before", getattr(work, "_of", None))
        if work is not None and not work._done:
            self.log.put({"k": "wait", "of": self._works[id(work)], "error": as_data(error)})

    def _all_reduce_each(self, t: Any, own: Callable, calls: Any, arrays: Any, op: Any) -> int:
        if self.aside:
            return own(calls, arrays, op)
        n = self.call(t.name, "all_reduce_each", tail=calls[0].tail.hex(), text=calls[0].text,
                      given=hash_of(arrays))  # fmt: skip
        done = self.noted(n, lambda: own(calls, arrays, op))
        self.end(n, done, self.log.buffers.copies(arrays[:done]))
        return done

    def _split(
        self, t: Any, own: Callable, call: Any, members: Any, name: str, swap: Any = None
    ) -> Any:  # fmt: skip
        if self.aside:
            return own(call, members, name, swap)
        n = self.call(t.name, "split", tail=call.tail.hex(), text=call.text)
        swapped: list[list[int]] = []

        def swap_kept(row: np.ndarray) -> np.ndarray:
            swapped.append(row.tolist())
            depth, self.local.depth = self.local.depth, 0  # by messages, which are kept
            try:
                return swap(row)
            finally:
                self.local.depth = depth

        made = self.noted(
            n, lambda: own(call, members, name, None if swap is None else swap_kept)
        )  # fmt: skip
        told = None if made is None else described(made)
        self.end(n, {"made": told, "swapped": swapped})
        return None if made is None else self.transport(made)

    def _share(self, t: Any, own: Callable, call: Any, nbytes: int) -> Any:
        if self.aside:
            return own(call, nbytes)
        n = self.call(t.name, "share", tail=call.tail.hex(), text=call.text)
        shared = self.noted(n, lambda: own(call, nbytes))
        self.end(n, {"there": shared is not None})
        if shared is not None:
            there = vars(t).setdefault("kept_shared", [])
            there.append((n, weakref.ref(shared.bytes)))
            shared.wait_open = functools.partial(self._opened, t, n, shared.wait_open)
        return shared

    def _opened(self, t: Any, of: int, own: Callable[[], None]) -> None:
        """All ranks' parts of shared memory are written, and of what has no turns of its own."""
        n = self.call(f"{t.name} shared {of}", "open")
        self.noted(n, own)
        self._own_turns.add(of)
        there = [
            (m, ref()) for m, ref in t.kept_shared
            if ref() is not None and (m == of or m not in self._own_turns)
        ]  # fmt: skip
        self.end(n, [m for m, _ in there], self.log.buffers.copies([a for _, a in there]))

    def _shrink(self, t: Any, own: Callable, *args: Any, **how: Any) -> Any:
        n = self.call(t.name, "shrink")
        made, before = self.noted(n, lambda: own(*args, **how))
        self.end(n, {"made": described(made), "before": list(before)})
        return self.transport(made), before

    def _close(self, t: Any, own: Callable, call: Any) -> None:
        if self.aside or call is None:
            return own(call)
        n = self.call(t.name, "close", tail=call.tail.hex(), text=call.text)
        self.noted(n, lambda: own(call))
        return self.end(n)

    # -- meetings and stores -------------------------------------------------------------------

    def connect(self, own: Callable, backend: Any, meeting: Any) -> Any:
        """The ranks of ``meeting`` meet."""
        n = self.call("meeting", "connect", text=f"connect({meeting.rank} of {meeting.size})")
        made = self.noted(n, lambda: own(backend, meeting))
        self.end(n, {"made": described(made)})
        return self.transport(made)

    def opened_store(self, own: Callable, store: Any, args: tuple, how: dict) -> None:
        """A store is opened."""
        n = self.call("stores", kind_of(store))
        self.noted(n, lambda: own(store, *args, **how))
        told = {k: vars(store)[k] for k in ("port", "host", "_told") if k in vars(store)}
        self.end(n, told)

    def drawn(self, name: str, value: int) -> int:
        """A number comes from a clock or the system."""
        if not self.aside:
            self.log.put({"k": "drawn", "key": drawn_key(name), "value": value})
        return value

    def asked(self, own: Callable, store: Any, request: Any, timeout: float) -> list[bytes]:
        """A store is asked."""
        n = self.call(store_key(request), "store")
        answers = self.noted(n, lambda: own(store, request, timeout))
        self.end(n, [len(a) for a in answers], [bytes(a) for a in answers])
        return answers

    # -- messages of RPC -----------------------------------------------------------------------

    def endpoint(self, make: Callable[[], Endpoint]) -> Endpoint:
        """The endpoint that ``make()`` opens."""
        n = self.call("endpoints", "open")
        made: Any = self.noted(n, make)
        self.end(n, {"address": made.address, "me": made.me})
        serve, send, connect = made.serve, made.send, made.connect

        def serve_kept(on_message: Callable, on_lost: Callable) -> None:
            serve(functools.partial(self._came, on_message), functools.partial(self._lost, on_lost))

        made.serve = serve_kept
        made.send = functools.partial(self._sent, send)
        made.connect = functools.partial(self._linked, connect)
        return made

    def _sent(self, own: Callable, peer: int, message: Message, awaited: bool = False) -> None:
        n = self.call(
            message_key(peer, message), "rpc", call=message.call,
            given=hash_of([a.reshape(-1) for a in message.arrays]),
        )  # fmt: skip
        self.noted(n, lambda: own(peer, message, awaited))

    def _linked(self, own: Callable, peer: int, address: str) -> None:
        n = self.call(f"link {peer}", "connect")
        self.noted(n, lambda: own(peer, address))
        self.end(n)

    def _came(self, on_message: Callable, peer: int, m: Message) -> None:
        arrays = [[a.dtype.name, list(a.shape)] for a in m.arrays]
        told = {
            "k": "in", "peer": peer, "kind": m.kind, "call": m.call, "answers": m.answers,
            "head": len(m.head), "payload": len(m.payload), "arrays": arrays,
        }  # fmt: skip
        head = [bytes(m.head), bytes(m.payload)]
        self.log.put(told, [*head, *self.log.buffers.copies(m.arrays)])
        on_message(peer, m)

    def _lost(self, on_lost: Callable, peer: int, error: BaseException) -> None:
        self.log.put({"k": "in", "peer": peer, "lost": as_data(error)})
        on_lost(peer, error)


def described(t: Any) -> dict[str, Any]:
    """What a replay has to know of a transport."""
    told = {k: getattr(t, k) for k in ("kind", "shares", "divides", "sealed", "name")}
    numbers = {"rank": int(t.rank), "size": int(t.size), "epoch": int(t.epoch)}
    return {**told, **numbers, "timeout": float(t.timeout)}


def kind_of(store: Any) -> str:
    """The name of a store's class, of those that are kept."""
    return "TCPStore" if isinstance(store, TCPStore) else "FileStore"


def drawn_key(name: str) -> str:
    """A number, and the function that it is drawn for."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
        frame = frame.f_back
    code = None if frame is None else frame.f_code
    where = "" if code is None else f"{os.path.basename(code.co_filename)} {code.co_qualname}"
    return f"{name} {where}"


def store_key(request: Any) -> str:
    """Which request of a store it is, whatever values it gives."""
    keys = b" ".join(bytes(key) for key in request[1])
    return f"store {request[0]} {keys.decode('utf-8', 'backslashreplace')}"


def message_key(peer: int, message: Message) -> str:
    """What a message is: an answer to a call, or a request of a kind."""
    if message.answers:
        return f"answer {peer} {message.call}"
    return f"request {peer} {message.kind} {int(message.call != 0)}"


def _on_host(moved: Moved) -> bool:
    return all(a.__class__ is np.ndarray for a in (*moved.given, *moved.got))


def keeper() -> Keeper | None:
    """The calling rank's."""
    found: Keeper | None = context.thread.rank.slots.get(SLOT)
    return found


# --- the functions that stand in ------------------------------------------------------------------


def _set_up(places: StandIns) -> None:
    places.put(Work, "wait", _wait)
    for kind in (TCPStore, FileStore):
        places.put(kind, "__init__", _open_store)
        places.put(kind, "_call", _ask)


_STAND_INS = StandIns(_set_up)  # of all ranks of the process that keep


def stand_in(to: Keeper) -> None:
    """The calling rank begins to keep."""
    slots = context.current().slots
    slots[SLOT], slots[endpoints.OPENER] = to, to.endpoint
    slots[context.DRAWN_SLOT], slots[selection.AROUND] = to.drawn, to.connect
    _STAND_INS.join()


def stand_aside() -> None:
    """It has ended."""
    slots = context.current().slots
    for slot in (SLOT, endpoints.OPENER, context.DRAWN_SLOT, selection.AROUND):
        slots.pop(slot, None)
    _STAND_INS.leave()


def _wait(own: Callable) -> Callable:
    def wait(self: Work, *args: Any, **how: Any) -> Any:
        to = keeper()
        if to is None or self._done:
            return own(self, *args, **how)
        try:
            return own(self, *args, **how)
        except BaseException as error:
            if not self._done:
                to.waited(self, error)
            raise

    return wait


def _open_store(own: Callable) -> Callable:
    def init(self: Any, *args: Any, **how: Any) -> None:
        to = keeper()
        if to is None or to.aside:
            return own(self, *args, **how)
        return to.opened_store(own, self, args, how)

    return init


def _ask(own: Callable) -> Callable:
    def call(self: Any, request: Any, timeout: float) -> list[bytes]:
        to = keeper()
        if to is None or to.aside:
            return own(self, request, timeout)
        return to.asked(own, self, request, timeout)

    return call
