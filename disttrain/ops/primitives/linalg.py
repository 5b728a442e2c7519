"""Primitives of linear algebra: products of matrices, and what solves with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends import lapack
from ...backends.fused.copies import contiguous
from ...backends.fused.products import few_rows, fixed_product, half_product, many_rows
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.types.wide import through_float32, total
from ...errors import ShapeError
from ...symbolic import common_shape
from ..declare import primitive, type_of
from ..promotion import only, refuse, same_type
from . import failures
from .batching import made_like
from .elementwise import H, cast_like, eq, where
from .reduce import sum_
from .views import Batched, expand, front, permute, reshape


def one_type(where: str) -> Any:
    """The promotion of products of matrices: none. Their operands have one type of numbers."""

    def promote(args: tuple) -> tuple:
        first = args[0].meta()[1]
        if first.kind == "b":
            raise refuse(where, first)
        for a in args[1:]:
            if a is not None and a.meta()[1] != first:
                same_type(where, *args)
        return args

    return promote


def swap(a: Any) -> Any:
    """The transpose of the last two dimensions."""
    n = len(a.shape)
    return permute(a, dims=(*range(n - 2), n - 1, n - 2))


def _matmul_shape(a: Shaped, b: Shaped) -> tuple:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"inner sizes {a.shape[-1]} and {b.shape[-2]} differ")
    lead = common_shape(a.shape[:-2], b.shape[:-2])
    return (*lead, a.shape[-2], b.shape[-1]), a.dtype


def _rows(a: Any) -> Any:
    """All vectors along the last dimension, as a matrix (of no columns too)."""
    return reshape(a, shape=(math.prod(a.shape[:-1]), a.shape[-1]))


def _matmul_db(g: object, a: Any, b_shape: Any) -> Any:
    if len(b_shape) == 2 and len(a.shape) > 2:
        # One product over all rows instead of a batch of products and a sum.
        a, g = _rows(a), _rows(g)
    return matmul(swap(H(a)), g)


def _batched_product(args: tuple, dims: tuple, size: int) -> list:
    """The factors of a batch of products, the batch in front."""
    ranks = [len(a.shape) - (d is not None) for a, d in zip(args, dims, strict=True)]
    aligned = []
    for a, d, r in zip(args, dims, ranks, strict=True):
        if d is not None:
            a = front(a, d)
            shape = tuple(a.shape)
            a = reshape(a, shape=(size, *(1,) * (max(ranks) - r), *shape[1:]))
        aligned.append(a)
    return aligned


def _matmul_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return matmul(*_batched_product(args, dims, size)), 0


LEAST = few_rows.LEAST  # numbers of b, where ``product`` may be another than numpy's


def product(a: np.ndarray, b: np.ndarray) -> Any:
    """``a @ b``."""
    if fixed_product.wanted():
        return by_panels(a, b)
    if len(a) <= few_rows.MOST and b.size >= LEAST:
        out = few_rows.product(a, b)
        if out is not None:
            return out
    many = len(b) == 1 or (len(a) >= many_rows.LEAST and b.size >= LEAST)
    return by_panels(a, b) if many else np.matmul(a, b)


def by_panels(a: np.ndarray, b: np.ndarray, out: Any = None) -> Any:
    """``a @ b`` where there are many rows, or sums of one term, perhaps in ``out``."""
    one = b.ndim == a.ndim == 2 and len(b) == 1 and a.shape[1] == 1
    made = few_rows.outer(a, b, out) if one else many_rows.product(a, b, out)
    return np.matmul(a, b, out=out) if made is None else made


def _product(a: Any, b: Any) -> Any:
    out = half_product.product(a, b) if a.dtype.kind == "V" else None
    return _wide_product(a, b) if out is None else out


_wide_product = through_float32(product)
_product.on_wide = product  # type: ignore[attr-defined]

matmul: Primitive = primitive(
    "matmul", _product, "a b",
    vjp={"a": lambda g, b: matmul(g, swap(H(b))), "b": _matmul_db},
    jvp="multilinear", shape=_matmul_shape, promote=one_type("matmul"),
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), rng.normal(size=(4, 2))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 2))), {}),
    ],
    batch=_matmul_batch,
)  # fmt: skip


def _local_product(a: np.ndarray, b: np.ndarray) -> Any:
    out = _product(a, b)
    odd = ~np.isfinite(out)
    if odd.any():
        _make_local(out, odd, a, b)
    return out


def _make_local(out: np.ndarray, odd: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compute the elements ``odd`` of ``out`` from what is not multiplied by zero."""
    if b.ndim > 2:
        lead = out.shape[:-2]
        a, b = (np.broadcast_to(x, lead + x.shape[-2:]) for x in (a, b))
        for at in np.ndindex(lead):
            _make_local(out[at], odd[at], a[at], b[at])
        return
    rows, hit, into = _rows(a), _rows(odd), out.reshape(-1, out.shape[-1])  # (a view: it is new)
    for column in np.flatnonzero(hit.any(0)):
        used, which = b[:, column] != 0, hit[:, column]
        into[which, column] = rows[which][:, used] @ b[used, column]


# ``a @ b`` of a ``b`` that has few numbers beside zeros (filters of images): what zeros are
# multiplied by is no part of it, not even inf and nan.
local_product: Primitive = primitive(
    "local_product", _local_product, "a b",
    vjp={"a": lambda g, b: local_product(g, swap(H(b))), "b": _matmul_db},
    jvp="multilinear", shape=_matmul_shape, promote=one_type("local_product"),
    samples=matmul.samples,
    batch=lambda args, dims, params, size: (
        local_product(*_batched_product(args, dims, size)), 0
    ),
)  # fmt: skip


_FEW = range(few_rows.MOST + 1, 65)  # for which the other order is faster, up to twice (measured)
_WORTH = 1 << 19  # multiplications from which it is


def by_other_order(shape: tuple, kind: np.dtype, w_shape: tuple, w_kind: np.dtype) -> bool:
    """Whether matrices of these shapes and types may be multiplied in the other order."""
    few = len(shape) == 2 and shape[0] in _FEW and math.prod(shape) * w_shape[0] >= _WORTH
    return few and kind.char == "f" and kind == w_kind and not fixed_product.wanted()


def by_rows(x: np.ndarray, w: np.ndarray, b: None = None) -> Any:
    """``x @ w.T``. A BLAS is slow at few rows times a transposed matrix, not at their transpose."""
    if by_other_order(x.shape, x.dtype, w.shape, w.dtype) and w.flags.c_contiguous:
        out = many_rows.product(x, w.T)
        if out is not None:
            return out
        return contiguous(np.matmul(w, x.T).T)
    return product(x, w.T)


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> Any:
    if x.dtype.kind == "V":
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        out = half_product.product(rows, w.T, b)
        if out is not None:
            return out.reshape(*x.shape[:-1], w.shape[0])
    return _wide_linear(x, w, b)


@through_float32
def _wide_linear(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> Any:
    if x.ndim > 2:
        # One product of two matrices: numpy would run a batch of small ones.
        out = by_rows(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), w)
        out = out.reshape(*x.shape[:-1], w.shape[0])
    else:
        out = by_rows(x, w)
    if b is not None:
        out += b
    return out


def _linear_shape(x: Shaped, w: Shaped, b: object = None) -> tuple:
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"the input's last size {x.shape[-1]} is not {w.shape[1]}")
    return (*x.shape[:-1], w.shape[0]), type_of(x)


def _linear_rule(g: Value, x: Any, w: Any, needs: tuple, w_place: tuple | None) -> tuple:
    """dx = g w, dw = g^T x over all rows, db = sum of g over all rows."""
    if g.__class__ is np.ndarray and g.dtype.char in "fd" and len(g.shape) == 2 and not w_place:
        return (  # the commonest, without a gate around each product
            product(g, w) if needs[0] else None,
            by_panels(g.T, x) if needs[1] else None,
            total(g, (0,), False) if needs[2] else None,
        )
    dx = None
    if needs[0]:
        if len(g.shape) == 2 or (len(g.shape) > 2 and g.__class__ is not np.ndarray):
            dx = matmul(g, H(w))
        else:  # one product of two matrices, as in ``_linear``
            dx = reshape(matmul(_rows(g), H(w)), shape=(*g.shape[:-1], w.shape[1]))
    dw = db = None
    if needs[1]:
        rows = g if len(g.shape) == 2 else _rows(g)
        inputs = x if len(x.shape) == 2 else _rows(x)
        if w_place is None or rows.__class__ is not np.ndarray or rows.dtype.char not in "fd":
            dw = matmul(swap(rows), H(inputs))
        else:
            dw, factor = w_place
            by_panels(rows.T, inputs, dw)
            np.multiply(dw, factor, out=dw)  # not the smaller rows before: that may overflow later
    if needs[2]:
        summed = g if g.__class__ is not np.ndarray else _rows(g)
        db = sum_(summed, dims=tuple(range(len(summed.shape) - 1)), keepdim=False)
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
    return (reshape(out, shape=(size, out.shape[-1])) if rank == 1 else out), 0


linear: Primitive = primitive(
    "linear", _linear, "x w b", vjp=_linear_rule, jvp=_linear_jvp, shape=_linear_shape,
    promote=one_type("linear"), reads={"x": "w", "w": "x", "b": ""},
    samples=lambda rng: [
        ((rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(2,))), {}),
        ((rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4)), None), {}),
    ],
    batch=_linear_batch,
)  # fmt: skip


def _square(where: str, a: Shaped) -> None:
    rows, columns = a.shape[-2:]
    if rows != columns:
        raise ShapeError(
            f"{where}: A must be batches of square matrices, but they are {rows} by {columns} "
            "matrices"
        )


def _inv(a: np.ndarray) -> Any:
    _square("linalg.inv", a)
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        _no_failure("linalg.inv", a, failures.singular)
        raise


def _no_failure(where: str, a: np.ndarray, said: Callable[[int], str]) -> None:
    """Raise what LAPACK's number says of singular matrices ``a``, which numpy does not tell."""
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and a.dtype.char in "fdFD":
        failures.no_failure(where, lapack.lu(a)[2], said)


inv: Primitive = primitive(
    "inv", _inv, "a", promote=only("inv", "fc"),
    vjp={"a": lambda g, out: -matmul(matmul(swap(H(out)), g), swap(H(out)))},
    shape=lambda a: (a.shape, a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 3)) + 3 * np.eye(3),), {})],
    batch=Batched(lambda: inv, lambda p, n: {}),
)  # fmt: skip


def _adjugate(a: np.ndarray) -> Any:
    """The matrix of cofactors, transposed, which singular matrices have, too: by the singular
    values, each place with the product of the others."""
    u, s, vh = np.linalg.svd(a)
    size = s.shape[-1]
    others = np.where(np.eye(size, dtype=bool), 1, s[..., None, :]).prod(-1)
    turn = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return turn * (swap(vh).conj() * others[..., None, :]) @ swap(u).conj()


def _det_rule(g: Value, a: Value, out: Any) -> Any:
    if isinstance(a, np.ndarray) and bool((out == 0).any()):  # one has no inverse
        return reshape(g, shape=(*a.shape[:-2], 1, 1)) * swap(H(_adjugate(a)))
    scale = reshape(g * H(out), shape=(*tuple(a.shape)[:-2], 1, 1))
    return scale * swap(H(inv(a)))


def _det(a: np.ndarray) -> Any:
    _square("linalg.det", a)
    return np.linalg.det(a)


det: Primitive = primitive(
    "det", _det, "a", promote=only("det", "fc"), vjp={"a": _det_rule},
    shape=lambda a: (a.shape[:-2], a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 3)) + 3 * np.eye(3),), {})],
    batch=Batched(lambda: det, lambda p, n: {}),
)  # fmt: skip


def _slogdet_shape(a: Shaped) -> list:
    real = np.dtype(f"f{a.dtype.itemsize // 2}") if a.dtype.kind == "c" else a.dtype
    return [(a.shape[:-2], a.dtype), (a.shape[:-2], real)]


def _slogdet_rule(g: tuple, a: Value, out: tuple) -> tuple:
    """d log|det a| is the real, and d sign over sign the imaginary part of tr(a^-1 da) (Giles,
    2008, "Collected matrix derivative results", 2.2.3)."""
    (turned, grown), sign = g, out[0]
    scale = cast_like(grown, sign)
    if array_type(sign).kind == "c":
        turn = H(sign) * turned
        scale = scale + (turn - H(turn)) * 0.5
    scale = reshape(scale, shape=(*tuple(a.shape)[:-2], 1, 1))
    return (scale * swap(H(inv(a))),)


slogdet: Primitive = primitive(
    "slogdet", lambda a: tuple(np.linalg.slogdet(a)), "a", vjp=_slogdet_rule, multi=True,
    shape=_slogdet_shape, promote=only("linalg.slogdet", "fc"),
    samples=lambda rng: [((rng.normal(size=(3, 3)) + 3 * np.eye(3),), {})],
    batch=Batched(lambda: slogdet, lambda p, n: {}),
)  # fmt: skip


# --- singular values ---------------------------------------------------------------------------
def _svd(a: np.ndarray) -> tuple:
    return tuple(np.linalg.svd(a, full_matrices=False))


def _svd_shape(a: Shaped) -> list:
    *lead, m, n = a.shape
    k = min(m, n)
    real = np.dtype(f"f{a.dtype.itemsize // 2}") if a.dtype.kind == "c" else a.dtype
    return [((*lead, m, k), a.dtype), ((*lead, k), real), ((*lead, k, n), a.dtype)]


def column(s: Value) -> Any:
    """Vectors as matrices of one column."""
    return reshape(s, shape=(*tuple(s.shape), 1))


def row(s: Value) -> Any:
    """Vectors as matrices of one row."""
    return reshape(s, shape=(*tuple(s.shape)[:-1], 1, s.shape[-1]))


def skew(x: object) -> Any:
    """Twice the skew-Hermitian part."""
    return x - swap(H(x))


def _svd_rule(g: tuple, a: Value, out: tuple) -> tuple:
    """Of the thin decomposition a = u diag(s) v^H (Townsend, 2016, "Differentiating the singular
    value decomposition"). Where singular values are equal, their vectors have no derivative; what
    they would get counts as 0, so that functions of the values alone stay right."""
    (gu, gs, gvh), (u, s, vh) = g, out
    uh, v, gv = swap(H(u)), swap(H(vh)), swap(H(gvh))
    failures.phase_free("linalg.svd", matmul(uh, gu) + matmul(swap(H(v)), gv))
    apart = row(s * s) - column(s * s)
    apart = where(eq(apart, 0), 0.0, 1.0 / where(eq(apart, 0), 1.0, apart))
    inner = skew(matmul(uh, gu)) * apart * row(s) + column(s) * (
        skew(matmul(swap(H(v)), gv)) * apart
    )
    size, kind = s.shape[-1], array_type(s)
    one = made_like(s, lambda xp: xp.eye(size, dtype=kind))
    over = where(eq(s, 0), 0.0, 1.0 / where(eq(s, 0), 1.0, s))
    inner = inner + column(gs) * one
    if array_type(u).kind == "c":  # the common phase of a pair of vectors
        inner = inner + skew(matmul(uh, gu)) * (column(over) * one * 0.5)
    total = matmul(matmul(u, cast_like(inner, u)), vh)
    m, n = tuple(a.shape)[-2:]
    if m > n:
        left = gu * cast_like(row(over), gu)
        total = total + matmul(left - matmul(u, matmul(uh, left)), vh)
    if n > m:
        right = cast_like(column(over), gvh) * gvh
        total = total + matmul(u, right - matmul(matmul(right, v), vh))
    return (total,)


def array_type(s: Any) -> np.dtype:
    """The element type of an array or a Tensor, as numpy's."""
    return s.dtype if isinstance(s, np.ndarray) else s.meta()[1]


svd: Primitive = primitive(
    "svd", _svd, "a", vjp=_svd_rule, multi=True, shape=_svd_shape,
    promote=only("linalg.svd", "fc"),
    samples=lambda rng: [((rng.normal(size=shape),), {}) for shape in ((3, 3), (4, 2), (2, 3))],
    batch=Batched(lambda: svd, lambda p, n: {}),
)  # fmt: skip


def _svd_square_shape(a: Shaped) -> list:
    *lead, m, n = a.shape
    return [((*lead, k, k), a.dtype) for k in (m, n)]


# The square matrices of vectors, of which ``a`` does not determine all: nothing goes back to it.
svd_square: Primitive = primitive(
    "svd_square", lambda a: tuple(np.linalg.svd(a, full_matrices=True)[::2]), "a", multi=True,
    shape=_svd_square_shape, promote=only("linalg.svd", "fc"),
    samples=lambda rng: [((rng.normal(size=shape),), {}) for shape in ((4, 2), (2, 3))],
    batch=Batched(lambda: svd_square, lambda p, n: {}),
)  # fmt: skip


def _solve_shape(a: Shaped, b: Shaped) -> tuple:
    if a.shape[-1] != a.shape[-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a square matrix and as many rows as it has are needed, {list(a.shape)} and "
            f"{list(b.shape)} given"
        )
    return b.shape, b.dtype


def _front_both(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """The batch rule of an operation on the last two dimensions of both arguments."""
    moved = [
        front(a, d) if d is not None
        else expand(reshape(a, shape=(1, *a.shape)), shape=(size, *a.shape))
        for a, d in zip(args, dims, strict=True)
    ]  # fmt: skip
    return solve(*moved), 0


def _solve(a: np.ndarray, b: np.ndarray) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        _no_failure("linalg.solve", a, failures.unsolvable)
        raise


# x with a x = b; both have the same dimensions before the last two.
solve: Primitive = primitive(
    "solve", _solve, "a b",
    vjp={
        "a": lambda g, a, out: -matmul(solve(swap(H(a)), g), swap(H(out))),
        "b": lambda g, a: solve(swap(H(a)), g),
    },
    shape=_solve_shape, promote=only("linalg.solve", "fc", one_type("linalg.solve")),
    batch=_front_both,
    samples=lambda rng: [
        ((rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(3, 2))), {}),
        ((rng.normal(size=(2, 3, 3)) + 3 * np.eye(3), rng.normal(size=(2, 3, 1))), {}),
    ],
)  # fmt: skip
for _factoring in (inv, svd, svd_square, solve):
    _factoring.checks = True
