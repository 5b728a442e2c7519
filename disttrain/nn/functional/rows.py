"""Sparse gradients of tables: only the rows that a step asked for.

What backward computes is the dense gradient; when it has been written, it is kept as a sparse
tensor, so that optimizers see which rows were asked for, zeros among them.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...context import thread
from ...core import Tensor
from ...core.tensor import wrap
from ...ops.functions.sparse import at_rows

_ASKED = "_asked_rows"  # on the table


class AskedRows:
    """The rows of one table that backward passes have gone through, each pass by itself: several
    may run at once. A hook of the table's accumulator."""

    def __init__(self, node: Any) -> None:
        self.node = weakref.ref(node)
        self.awaited = False  # whether who stores the gradients elsewhere (DDP) takes them
        self._of: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by walk

    def note(self, rows: np.ndarray) -> None:
        """The pass that is running on this thread has gradients for ``rows``."""
        self._of.setdefault(thread.walk, []).append(rows)

    def take(self) -> list[np.ndarray]:
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
        holder._grad = only_rows(holder._grad, [*self.take(), *rows_of(holder._grad)])


def sparse_gradient(weight: Any, out: Tensor, input: Any, padding_idx: int | None) -> None:
    """Let the gradient of the leaf ``weight`` be sparse, after ``out`` was looked up in it. On a
    device the host waits for the numbers of rows here, and in backward to see that others are 0."""
    asked = asked_rows(weight)
    index = input.detach().array
    rows = np.unique(index.to_host() if isinstance(index, DeviceArray) else index)
    rows = rows[rows != padding_idx] if padding_idx is not None else rows
    out.register_hook(lambda g: None if g is None else asked.note(rows))


def asked_rows(weight: Any) -> AskedRows:
    """What looks after the rows of the leaf ``weight``."""
    asked: AskedRows | None = weight.__dict__.get(_ASKED)
    if asked is None or asked.node() is not weight._node:  # it was frozen meanwhile
        asked = weight.__dict__[_ASKED] = AskedRows(weight._node)
        weight.register_post_accumulate_grad_hook(asked)
    return asked


def rows_of(grad: Any) -> list[np.ndarray]:
    """The rows of a sparse gradient; of others, which may have all, none."""
    return [grad._places[0]] if grad is not None and grad.is_sparse else []


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
