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
from .ops.functions.sparse.structured import of_values
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
        return gradcheck(*of_values(func, inputs), **kwargs)

    return check


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
