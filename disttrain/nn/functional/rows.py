"""Sparse gradients of tables: only the rows that a step asked for.

What backward computes is the dense gradient; when it has been written, it is kept as a sparse
tensor, so that optimizers see which rows were asked for, zeros among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Tensor
from ...ops.functions.sparse import at_rows

_KEPT = "_rows_of_grad"  # on the table: the rows whose gradients have come since the last writing


def sparse_gradient(weight: Any, out: Tensor, input: Any, padding_idx: int | None) -> None:
    """Let the gradient of the leaf ``weight`` be sparse, after ``out`` was looked up in it."""
    kept = weight.__dict__.get(_KEPT)
    if kept is None:
        kept = weight.__dict__[_KEPT] = []
        weight.register_post_accumulate_grad_hook(_keep_rows)
    rows = np.unique(input.detach().array)
    rows = rows[rows != padding_idx] if padding_idx is not None else rows
    out.register_hook(lambda g: kept.append(rows))


def _keep_rows(weight: Any) -> None:
    """Make the gradient that was just written sparse, unless other rows have one too; or unless it
    lies where others will add to it (DDP), whose rows are not known here."""
    kept, grad = weight.__dict__[_KEPT], weight.grad
    if weight._node.store is not None:
        kept.clear()
        return
    before = [grad._indices().array[0]] if grad.is_sparse else []
    rows = np.unique(np.concatenate([*kept, *before])) if kept or before else np.zeros(0, np.int64)
    kept.clear()
    dense = grad.array
    others = np.ones(dense.shape[0], bool)
    others[rows] = False
    weight.grad = grad.to_dense() if dense[others].any() else at_rows(grad, rows)
