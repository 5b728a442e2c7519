"""``dt.sparse``: products, sums and softmax of sparse tensors, under the names of ``torch.sparse``.

Sparse tensors are made by ``dt.sparse_coo_tensor``, ``dt.sparse_csr_tensor`` and
``Tensor.to_sparse``.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from .ops.functions.outs import fills
from .ops.functions.sparse import named
from .ops.functions.sparse.checks import check_sparse_tensor_invariants
from .ops.functions.sparse.compressed import CompressedTensor
from .ops.functions.sparse.coo import SparseTensor
from .ops.names import settle

addmm, mm = named.addmm, named.mm
log_softmax, softmax, sum = named.log_softmax, named.softmax, named.sum  # noqa: A001
sampled_addmm, spdiags = fills(named.sampled_addmm), named.spdiags
settle(sys.modules[__name__])


def as_sparse_gradcheck(gradcheck: Callable) -> Callable:
    """``gradcheck`` for functions of sparse tensors: they are made of their values inside of the
    function that it sees, and results are their values."""

    @functools.wraps(gradcheck)
    def check(func: Callable, inputs: Any, **kwargs: Any) -> Any:
        kwargs.pop("masked", None)
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        values = tuple(x._held if _is_sparse(x) else x for x in given)

        def plain(*parts: Any) -> Any:
            full = [
                x.with_values(v) if _is_sparse(x) else v for x, v in zip(given, parts, strict=True)
            ]
            out = func(*full)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            found = tuple(o._held if _is_sparse(o) else o for o in outs)
            return found if isinstance(out, (tuple, list)) else found[0]

        return gradcheck(plain, values, **kwargs)

    return check


def _is_sparse(x: object) -> bool:
    return isinstance(x, (SparseTensor, CompressedTensor))


__all__ = [
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]
