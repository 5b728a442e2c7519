"""Where arrays that should be equal differ: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Of types, as numpy names them. The order in which gradients are added up differs between plans.
RTOL = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2,
        "complex128": 1e-9, "complex64": 1e-4}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """``what`` is ``loss``, ``gradient``, ``buffer``, ``parameter`` or ``output``; ``name`` that of
    the parameter, buffer or module; ``index`` where it is largest; ``got`` and ``wanted`` are the
    values there."""

    what: str
    name: str
    rank: int
    size: float
    index: tuple[int, ...]
    got: Any
    wanted: Any
    note: str = ""

    def __str__(self) -> str:
        of = f"{self.what} of {self.name!r}" if self.what == "gradient" else self.what
        if self.what not in ("gradient", "loss"):
            of = f"{self.what} {self.name!r}"
        if self.note:
            return f"{of}, rank {self.rank}: {self.note}"
        where = f" at {list(self.index)}" if self.index else ""
        return (
            f"{of}, rank {self.rank}: max difference {self.size:.3g}{where}: "
            f"{self.got:.7g}, with one process {self.wanted:.7g}"
        )


def differ(
    what: str, name: str, rank: int, got: Any, wanted: Any, rtol: float | None, atol: float
) -> Difference | None:
    """None, where no element differs by more than ``atol`` and ``rtol`` of the largest one."""
    if got is None or wanted is None:
        if got is None and wanted is None:
            return None
        has = "there is none" if got is None else "there is one"
        other = "none" if wanted is None else "one"
        note = f"{has}, and with one process {other}"
        return Difference(what, name, rank, np.inf, (), None, None, note)
    if got.shape != wanted.shape:
        note = f"shape {got.shape}, with one process {wanted.shape}"
        return Difference(what, name, rank, np.inf, (), None, None, note)
    if not wanted.size:
        return None
    relative = RTOL.get(wanted.dtype.name, 0.0) if rtol is None else rtol
    kind = np.complex128 if np.iscomplexobj(wanted) else np.float64
    a, b = got.astype(kind), wanted.astype(kind)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    finite = np.abs(b[np.isfinite(b)])
    if apart.max() <= atol + relative * (finite.max() if finite.size else 0.0):
        return None
    index = np.unravel_index(int(apart.argmax()), apart.shape)
    at = tuple(int(i) for i in index)
    return Difference(what, name, rank, float(apart.max()), at, a[at].item(), b[at].item())


def compare(
    what: str, rank: int, got: Mapping[str, Any], wanted: Mapping[str, Any],
    rtol: float | None, atol: float,
) -> list[Difference]:  # fmt: skip
    """Of arrays by name, in the order of ``wanted``."""
    found = [differ(what, n, rank, got.get(n), wanted[n], rtol, atol) for n in wanted]
    more = [differ(what, n, rank, got[n], None, rtol, atol) for n in got if n not in wanted]
    return [each for each in (*found, *more) if each is not None]


@dataclass(frozen=True)
class Call:
    """A call of a module: its first tensor, and what it returned, where that is one."""

    name: str
    kind: str
    given: Any
    output: Any


def first_call(
    ranks: list[list[Call]], wanted: list[Call], splits: bool, rtol: float | None, atol: float
) -> tuple[Call, Difference] | None:
    """The first call, in the order of one process, of which something differs; the difference is of
    its ``input``, if that does, else of its ``output``. The rows of ``ranks`` follow each other;
    what does not fit together is not compared."""
    names = [(call.name, call.kind) for call in wanted]
    if any([(call.name, call.kind) for call in calls] != names for calls in ranks):
        return None
    for number, call in enumerate(wanted):
        for what, field in (("input", "given"), ("output", "output")):
            parts = [getattr(calls[number], field) for calls in ranks]
            found = _rows_differ(what, call, parts, getattr(call, field), splits, rtol, atol)
            if found is not None:
                return call, found
    return None


def _rows_differ(
    what: str, call: Call, parts: list[Any], whole: np.ndarray, splits: bool, rtol: float | None,
    atol: float,
) -> Difference | None:  # fmt: skip
    if whole is None or not whole.ndim or any(part is None or not part.ndim for part in parts):
        return None
    start = 0
    for rank, part in enumerate(parts):
        rows = whole[start : start + len(part)] if splits else whole
        start += len(part)
        if part.shape != rows.shape:
            return None
        found = differ(what, call.name, rank, part, rows, rtol, atol)
        if found is not None:
            return found
    return None
