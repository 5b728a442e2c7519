"""The headers of a group's calls, from a cache by arguments and calling line.

Building a header costs a few microseconds and a program calls from the same lines again and again,
so it is built once per line and arguments. Knows frames and texts; no data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np

from .header import RAGGED, STRICT, Call, Site, describe_array
from .reduce_ops import ReduceOp, check_op

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_CALLS = 4096
_ANYWHERE = ("barrier", "split", "close", "send", "recv")  # whose lines differ by their nature


class Calls:
    """Makes and keeps the ``Call`` of each line that uses a group."""

    def __init__(
        self, name: str, epoch: int, rank: int, ranks: Sequence[int], strict: bool = False
    ) -> None:
        """``strict``: the calling line and the shape must agree between ranks, too."""
        self._name, self._epoch, self._rank, self._ranks = name, epoch, rank, ranks
        self._strict = strict
        self._known: dict[tuple, tuple] = {}

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
    ) -> Call:
        """The call that the innermost frame outside this package makes.

        ``sizes`` must agree between ranks; ``shown`` is for the reader only; with ``ragged`` the
        size of ``array`` is too.
        """
        frame = sys._getframe(2)
        while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
            frame = frame.f_back
        code = frame.f_code
        what = None if array is None else (array.shape, array.dtype)
        key = (verb, what, id(op), root, id(code), frame.f_lasti, sizes, shown, ragged)
        entry = self._known.get(key)
        if entry is None:
            site = Site(code, frame.f_lineno)
            call = self._make(verb, what, op, root, sizes, ragged, shown, site)
            if len(self._known) > _MAX_CALLS:
                self._known.clear()
            self._known[key] = entry = (call, code, op)  # kept alive, so that ids stay theirs
        return entry[0]

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
        return Call(
            "send" if verb == "recv" else verb,
            shown=verb,
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
