"""Products with sparse matrices, which are given by places and values.

    sparse_product(values, b, rows, cols; size)   out[rows[i]] += values[i] * b[cols[i]]
    sampled_product(a, b, rows, cols)             out[i] = sum(a[rows[i]] * b[cols[i]])

Each is the derivative of the other. Composed of ``take`` and ``spread`` they would need memory for
a row of every place. Places are valid and not negative here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.fused.products import sparse_product as kernels
from ...core.annotations import Shaped
from ...core.gate import Primitive
from ...core.types.wide import through_float32
from ..declare import primitive
from .batching import fronted
from .elementwise import H
from .gathering import shifted
from .views import reshape


def _stacked(index: Any, n: int) -> Any:
    """Places of a batch of matrices of ``n`` rows, in the one that has them along its diagonal."""
    return reshape(shifted(index, n, index.shape[0]), shape=(index.shape[0] * index.shape[1],))


def _merged(a: Any) -> Any:
    """A batch of tables as one."""
    return reshape(a, shape=(a.shape[0] * a.shape[1], *a.shape[2:]))


def _product_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    values, b, rows, cols = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
    n = params["size"]
    out = sparse_product(
        _merged(values), _merged(b), _stacked(rows, n), _stacked(cols, b.shape[1]), size=size * n
    )
    return reshape(out, shape=(size, n, out.shape[1])), 0


def _sampled_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, b, rows, cols = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
    out = sampled_product(
        _merged(a), _merged(b), _stacked(rows, a.shape[1]), _stacked(cols, b.shape[1])
    )
    return reshape(out, shape=(size, rows.shape[1])), 0


def _product_shape(values: Shaped, b: Shaped, rows: object, cols: object, size: int) -> tuple:
    return (size, b.shape[1]), np.result_type(values.dtype, b.dtype)


def _samples(rng: Any, first: tuple) -> tuple:
    rows, cols = np.array([0, 2, 2, 1, 0]), np.array([1, 0, 3, 3, 1])
    return rng.normal(size=first), rng.normal(size=(4, 3)), rows, cols


sparse_product: Primitive = primitive(
    "sparse_product", through_float32(kernels.product), "values b rows cols",
    vjp={
        "values": lambda g, b, rows, cols: sampled_product(g, H(b), rows, cols),
        "b": lambda g, values, rows, cols, b_shape: sparse_product(
            H(values), g, cols, rows, size=b_shape[0]
        ),
    },
    jvp="multilinear", batch=_product_batch, shape=_product_shape,
    samples=lambda rng: [(_samples(rng, (5,)), {"size": 3})],
)  # fmt: skip

sampled_product: Primitive = primitive(
    "sampled_product", through_float32(kernels.sampled), "a b rows cols",
    vjp={
        "a": lambda g, b, rows, cols, a_shape: sparse_product(g, H(b), rows, cols, size=a_shape[0]),
        "b": lambda g, a, rows, cols, b_shape: sparse_product(g, H(a), cols, rows, size=b_shape[0]),
    },
    jvp="multilinear", batch=_sampled_batch,
    shape=lambda a, b, rows, cols: ((rows.shape[0],), a.dtype),
    samples=lambda rng: [(_samples(rng, (3, 3)), {})],
)  # fmt: skip
