"""Sparse gradients of tables: only the rows that a step asked for.

What backward computes is the dense gradient; when it has been written, it is kept as a sparse
tensor, with a row for each time that one was asked for, zeros among them, the last pass first.
Where the gradient is not their sum (hooks, other uses of the table), and on accelerators, each row
stands once.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...context import thread
from ...core import Tensor
from ...core.tensor import wrap
from ...core.types.dtypes import finfo
from ...ops.functions.creation.sparse_gradients import at_rows, of_rows

_ASKED = "_asked_rows"  # on the table
Noted = tuple[np.ndarray, Any]  # rows, and their gradients, where these are known


class AskedRows:
    """The rows of one table that backward passes have gone through, each pass by itself: several
    may run at once. A hook of the table's accumulator."""

    def __init__(self, node: Any) -> None:
        self.node = weakref.ref(node)
        self.awaited = False  # whether who stores the gradients elsewhere (DDP) takes them
        self._of: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by walk

    def note(self, rows: np.ndarray, values: object) -> None:
        """The pass that is running on this thread has gradients ``values`` for ``rows``."""
        self._of.setdefault(thread.walk, []).append((rows, values))

    def take(self) -> list[Noted]:
        """What was noted in the pass that is running on this thread."""
        return self._of.pop(thread.walk, [])

    def __call__(self, weight: Any) -> None:
        """The gradient of ``weight`` was written."""
        if weight._grad is None:  # nothing has come
            self.take()
        elif weight._node.store is None:
            self.keep(weight)
        elif not self.awaited:  # it lies where others will add to it, whose rows are not known
            self.take()

    def keep(self, holder: Any) -> None:
        """Make ``holder._grad``, to which this pass has added, sparse."""
        grad, noted = holder._grad, self.take()
        if grad.is_sparse:  # another pass has gone before
            noted += grad.listed_before()
        listed = every_row(grad, noted)
        if listed is None:
            listed = only_rows(grad, [rows for rows, _ in noted])
        holder._grad = listed


def sparse_gradient(weight: object, out: Tensor, input: Any, padding_idx: int | None) -> None:
    """Let the gradient of the leaf ``weight`` be sparse, after ``out`` was looked up in it. On a
    device the host waits for the numbers of rows here, and in backward to see that others are 0."""
    asked = asked_rows(weight)
    index = input.detach().array
    there = isinstance(index, DeviceArray)
    rows = (index.to_host() if there else index).reshape(-1)
    kept = slice(None) if padding_idx is None else rows != padding_idx

    def note(g: Tensor) -> None:
        if g is not None:
            values = None if there else g.array.reshape(len(rows), g.shape[-1])[kept].copy()
            asked.note(rows[kept], values)

    out.register_hook(note)


def asked_rows(weight: Any) -> AskedRows:
    """What looks after the rows of the leaf ``weight``."""
    asked: AskedRows | None = weight.__dict__.get(_ASKED)
    if asked is None or asked.node() is not weight._node:  # it was frozen meanwhile
        asked = weight.__dict__[_ASKED] = AskedRows(weight._node)
        weight.register_post_accumulate_grad_hook(asked)
    return asked


def rows_of(grad: Any) -> list[np.ndarray]:
    """The rows of a sparse gradient; of others, which may have all, none."""
    return [grad._parts()[0][0]] if grad is not None and grad.is_sparse else []


def every_row(grad: Any, noted: list[Noted]) -> Any:
    """``grad`` with a row for each that is noted, if it is their sum but for rounding; or None."""
    if not noted or isinstance(grad.array, DeviceArray) or any(v is None for _, v in noted):
        return None
    dense = grad.array
    rows = np.concatenate([r for r, _ in noted])
    values = np.concatenate([v for _, v in noted])
    found, where = np.unique(rows, return_inverse=True)
    total = np.zeros((2, found.size, values.shape[1]), np.result_type(dense.dtype, np.float32))
    np.add.at(total[0], where, values)
    np.add.at(total[1], where, np.abs(values))
    unit = len(rows) * float(finfo(dense.dtype).eps)
    others = np.ones(dense.shape[0], bool)
    others[found] = False
    if dense[others].any() or not (abs(dense[found] - total[0]) <= unit * total[1].real).all():
        return None
    return of_rows(rows, values, dense.shape)


def only_rows(grad: Any, rows: list[np.ndarray]) -> Any:
    """``grad`` with ``rows`` alone, as a sparse tensor, unless others are not zero either: then a
    dense one."""
    found = np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
    dense = grad.array
    others = np.ones(dense.shape[0], bool)
    others[found] = False
    if isinstance(dense, DeviceArray):
        filled = wrap(dense)[wrap(dense.beside(np.flatnonzero(others)))].any().item()
    else:
        filled = dense[others].any()
    if filled:
        return grad.to_dense() if grad.is_sparse else grad
    return at_rows(grad, found)
