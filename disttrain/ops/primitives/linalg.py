"""Primitives of linear algebra: products of matrices, and what solves with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..declare import primitive, type_of
from ..promotion import same_type_args
from .elementwise import H
from .reduce import sum_
from .views import batched, expand, front, permute, reshape


def swap(a: Any) -> Any:
    """The transpose of the last two dimensions."""
    n = len(a.shape)
    return permute(a, dims=(*range(n - 2), n - 1, n - 2))


def _through_f32(product: Any) -> Any:
    """Compute narrow floating types in float32 (numpy has no fast product for them)."""

    def forward(a: Any, b: Any) -> Any:
        kind = a.dtype
        if kind.kind == "V" or kind == np.float16:
            return product(a.astype(np.float32), b.astype(np.float32)).astype(kind)
        return product(a, b)

    return forward


def _matmul_shape(a: Any, b: Any) -> tuple:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"inner sizes {a.shape[-1]} and {b.shape[-2]} differ")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*lead, a.shape[-2], b.shape[-1]), a.dtype


def _matmul_db(g: Any, a: Any, b_shape: Any) -> Any:
    if len(b_shape) == 2 and len(a.shape) > 2:
        # One product over all rows instead of a batch of products and a sum.
        a = reshape(a, shape=(-1, a.shape[-1]))
        g = reshape(g, shape=(-1, g.shape[-1]))
    return matmul(swap(H(a)), g)


def _matmul_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    ranks = [len(a.shape) - (d is not None) for a, d in zip(args, dims, strict=True)]
    aligned = []
    for a, d, r in zip(args, dims, ranks, strict=True):
        if d is not None:
            a = front(a, d)
            shape = tuple(a.shape)
            a = reshape(a, shape=(size, *(1,) * (max(ranks) - r), *shape[1:]))
        aligned.append(a)
    return matmul(*aligned), 0


matmul = primitive(
    "matmul", _through_f32(np.matmul), "a b",
    vjp={"a": lambda g, b: matmul(g, swap(H(b))), "b": _matmul_db},
    jvp="multilinear", shape=_matmul_shape, promote=same_type_args,
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), rng.normal(size=(4, 2))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 2))), {}),
    ],
    batch=_matmul_batch,
)  # fmt: skip


def _linear(x: Any, w: Any, b: Any = None) -> Any:
    kind = x.dtype
    if kind.kind == "V" or kind == np.float16:
        out = np.matmul(x.astype(np.float32), w.T.astype(np.float32))
        return (out if b is None else out + b.astype(np.float32)).astype(kind)
    if x.ndim > 2:
        # One product of two matrices: numpy would run a batch of small ones.
        out = np.matmul(x.reshape(-1, x.shape[-1]), w.T)
        out = out.reshape(*x.shape[:-1], w.shape[0])
    else:
        out = np.matmul(x, w.T)
    if b is not None:
        out += b
    return out


def _linear_shape(x: Any, w: Any, b: Any = None) -> tuple:
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"the input's last size {x.shape[-1]} is not {w.shape[1]}")
    return (*x.shape[:-1], w.shape[0]), type_of(x)


def _linear_rule(g: Any, x: Any, w: Any, needs: tuple) -> tuple:
    """dx = g w, dw = g^T x over all rows, db = sum of g over all rows."""
    dx = matmul(g, H(w)) if needs[0] else None
    dw = db = None
    if needs[1]:
        rows = g if len(g.shape) == 2 else reshape(g, shape=(-1, g.shape[-1]))
        inputs = x if len(x.shape) == 2 else reshape(x, shape=(-1, x.shape[-1]))
        if len(g.shape) == 1:
            rows, inputs = reshape(g, shape=(1, -1)), reshape(x, shape=(1, -1))
        dw = matmul(swap(rows), H(inputs))
    if needs[2]:
        db = sum_(g, dims=tuple(range(len(g.shape) - 1)), keepdim=False)
    return dx, dw, db


def _linear_jvp(primals: tuple, tangents: tuple, params: dict) -> Any:
    (x, w, _), (dx, dw, db) = primals, tangents
    parts = [
        linear(dx, w, None) if dx is not None else None,
        linear(x, dw, None) if dw is not None else None,
    ]
    if db is not None:
        parts.append(expand(db, shape=(*tuple(x.shape)[:-1], w.shape[0])))
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _linear_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    x, w, b = (a if d is None else front(a, d) for a, d in zip(args, dims, strict=True))
    if dims[1] is None and dims[2] is None:
        return linear(x, w, b), 0
    rank = len(x.shape) - (dims[0] is not None)
    if rank == 1:  # a vector is a matrix of one row, for as long as it takes
        x = reshape(x, shape=(*tuple(x.shape)[:-1], 1, x.shape[-1]))
    out, _ = _matmul_batch(
        (x, swap(w)), (None if dims[0] is None else 0, None if dims[1] is None else 0), {}, size
    )
    if dims[0] is None and dims[1] is None:
        out = linear(x, w, None)
    if b is not None:
        if dims[2] is not None:
            b = reshape(b, shape=(size, *(1,) * max(rank - 1, 1), b.shape[-1]))
        out = out + b
    if rank == 1:
        out = reshape(out, shape=(size, out.shape[-1]))
    return out, 0


linear = primitive(
    "linear", _linear, "x w b", vjp=_linear_rule, jvp=_linear_jvp, shape=_linear_shape,
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(2,))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4)), None), {}),
    ],
    batch=_linear_batch,
)  # fmt: skip


inv = primitive(
    "inv", np.linalg.inv, "a",
    vjp={"a": lambda g, out: -matmul(matmul(swap(H(out)), g), swap(H(out)))},
    shape=lambda a: (a.shape, a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 3)) + 3 * np.eye(3),), {})],
    batch=batched(lambda: inv, lambda p, n: {}),
)  # fmt: skip


def _det_rule(g: Any, a: Any, out: Any) -> Any:
    scale = reshape(g * H(out), shape=(*tuple(a.shape)[:-2], 1, 1))
    return scale * swap(H(inv(a)))


det = primitive(
    "det", np.linalg.det, "a", vjp={"a": _det_rule}, shape=lambda a: (a.shape[:-2], a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 3)) + 3 * np.eye(3),), {})],
    batch=batched(lambda: det, lambda p, n: {}),
)  # fmt: skip
