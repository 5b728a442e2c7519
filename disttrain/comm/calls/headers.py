"""The headers of a group's calls, from a cache by arguments and calling line.

Building a header costs a few microseconds and a program calls from the same lines again and again,
so it is built once per line and arguments.

Collectives have one order on all ranks, so threads of a rank that call them on one group must take
turns: who finds another thread in the middle of one gets an error. Its stack says so; nothing has
to be marked and taken back around each call. Knows frames and texts; no data.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from functools import partial

import numpy as np

from ...errors import CommError
from ..job.blackbox import MARK, Recorder, recorder
from .header import DTYPE_CODE, OP_CODE, RAGGED, STRICT, Call, Site, describe_array
from .reduce_ops import ReduceOp, check_op
from .work import Work

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_GROUP = os.path.join(_PACKAGE, "comm", "group", "group.py")
_MAX_CALLS = 4096
_MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch"})  # at any time, from any thread
_get_ident = threading.get_ident
_SHOWN = {"close": "destroy_process_group"}  # what programs call it
_ANYWHERE = ("barrier", "split", "close", "send", "recv")  # whose lines differ by their nature


def _end(box: Recorder, begun: int, work: Work) -> None:
    if work.exception() is None:
        box.end(begun)
    else:
        box.fail(begun)


class _Inside(dict[str, bool]):
    """Which files are of this package."""

    def __missing__(self, path: str) -> bool:
        if len(self) > _MAX_CALLS:
            self.clear()
        found = self[path] = path.startswith(_PACKAGE)
        return found


class Calls:
    """Makes and keeps the ``Call`` of each line that uses a group."""

    def __init__(
        self, name: str, epoch: int, rank: int, ranks: Sequence[int], strict: bool = False
    ) -> None:
        """``strict``: the calling line and the shape must agree between ranks, too."""
        self._name, self._epoch, self._rank, self._ranks = name, epoch, rank, ranks
        self._strict = strict
        self._known: dict[tuple, tuple] = {}
        self._inside = _Inside()
        self._thread, self._lock = _get_ident(), threading.Lock()
        self._count = 0  # collectives so far
        self.box: Recorder = recorder()
        self._group = self.box.group(name, ranks)

    def get(
        self,
        verb: str,
        array: np.ndarray | None,
        *,
        op: ReduceOp | None = None,
        root: int = -1,
        sizes: tuple = (),
        ragged: bool = False,
        shown: tuple = (),
        begins: bool = True,
    ) -> tuple[Call, int]:
        """The call that the innermost frame outside this package makes, which begins now; and what
        the black box (``box``) is to be told when it has ended.

        ``sizes`` must agree between ranks; ``shown`` is for the reader only; with ``ragged`` the
        size of ``array`` is too. Without ``begins`` it is only prepared (see ``begin``). Raises
        ``CommError`` where another thread is in the middle of a collective of this group.
        """
        if self._thread != _get_ident() and verb not in _MESSAGES:
            self._change_hands(verb)
        frame, inside = sys._getframe(2), self._inside
        code = frame.f_code
        while inside[code.co_filename] and (back := frame.f_back) is not None:
            frame, code = back, back.f_code
        what = None if array is None else (array.shape, array.dtype)
        key = (verb, what, id(op), root, id(code), frame.f_lasti, sizes, shown, ragged)
        entry = self._known.get(key)
        if entry is None:
            site = Site(code, frame.f_lineno)
            call = self._make(verb, what, op, root, sizes, ragged, shown, site)
            if op is None or op.factor is None:
                if len(self._known) > _MAX_CALLS:
                    self._known.clear()
                self._known[key] = (call, code, op)  # kept alive, so that ids stay theirs
            # else ever new factors, and what is prepared for each takes memory
        else:
            call = entry[0]
        if call.counts and begins:
            self._count = count = self._count + 1
            return call, self.box.begin(count, call.mark)
        return call, self.box.begin(0, call.mark) if begins else 0

    def begin(self, call: Call) -> int:
        """A collective begins that was prepared."""
        self._count += 1
        return self.box.begin(self._count, call.mark)

    def ended(self, begun: int, work: Work | None) -> Work | None:
        """It has ended, or does so with ``work``, which is returned."""
        if work is None:
            self.box.end(begun)
        else:
            work.on_end(partial(_end, self.box, begun))
        return work

    def _change_hands(self, verb: str) -> None:
        """From now on this thread calls, unless the one that did so before is still at it."""
        with self._lock:
            before, me = self._thread, _get_ident()
            running = self._running(before)
            if running is None:
                self._thread = me
                return
        names = {t.ident: t.name for t in threading.enumerate()}
        raise CommError(
            f"group {self._name}: {verb} was called in thread {names.get(me, me)!r} while thread "
            f"{names.get(before, before)!r} is in {running}. Collectives of a group need one order "
            "on all ranks: let threads take turns with a lock, or give each thread a group of its "
            "own (new_group)"
        )

    def _running(self, ident: int) -> str | None:
        """The collective of this group that a thread is in the middle of."""
        frame = sys._current_frames().get(ident)
        while frame is not None:
            code = frame.f_code
            if code.co_filename == _GROUP and code.co_name not in _MESSAGES:
                group = frame.f_locals.get("self")
                if getattr(group, "_calls", None) is self:
                    return code.co_name
            frame = frame.f_back
        return None

    def _make(
        self,
        verb: str,
        what: tuple | None,
        op: ReduceOp | None,
        root: int,
        sizes: tuple,
        ragged: bool,
        shown: tuple,
        site: Site,
    ) -> Call:
        if op is not None:
            check_op(op)
        shape, dtype = what or (None, None)
        args = [] if what is None else [describe_array(dtype, shape)]
        args += [f"op={op}"] if op is not None else []
        args += [f"root={self._ranks[root]}"] if root >= 0 else []
        args += [f"sizes={sizes}"] if sizes else []
        args += [f"{s[0]}={s[1]}" if s and isinstance(s[0], str) else str(s) for s in shown]
        args += [f"group={self._name}"] if verb in ("send", "recv") else []
        if ragged or sizes:
            shape = None
        strict = self._strict and verb not in _ANYWHERE
        call = Call(
            "send" if verb == "recv" else verb,
            shown=_SHOWN.get(verb, verb),
            args=", ".join(args),
            site=site.text,
            dtype=dtype,
            reduce_code=0 if op is None else op.code + 1,
            flags=(RAGGED if ragged else 0) | (STRICT if self._strict else 0),
            root=root,
            numel=0 if shape is None else int(np.prod(shape, dtype=object)),
            common=f"{self._name} {self._epoch} {shape if self._strict else ''} {sizes} {op}",
            line=site.line if strict and self._rank != root else 0,
        )
        call.counts = verb not in _MESSAGES
        peer = root if call.counts else shown[0][1]
        call.mark = MARK.pack(
            0 if what is None else int(np.prod(what[0], dtype=object)),
            self.box.text(call.text),
            self._group,
            -1 if peer is None or peer < 0 else self._ranks[peer],
            OP_CODE[verb],
            255 if dtype is None else DTYPE_CODE[dtype],
            0 if op is None else op.code + 1,
            call.counts,
        )
        return call
