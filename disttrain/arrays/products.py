"""Products of arrays with NumPy's and XLA's rules for dimensions; comparisons of whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axes_of, axis_of


def _unlike(a: Tensor, b: Tensor) -> TypeError:
    return TypeError(
        "dot_general requires contracting dimensions to have the same shape, got "
        f"{tuple(a.shape)} and {tuple(b.shape)}."
    )


def _exact(fn: Any, a: Tensor, b: Tensor) -> Tensor:
    """``fn`` of bools and integers, whose products are counted in their own type."""
    if a.dtype is dtypes.bool:
        return fn(a.to(dtypes.int32), b.to(dtypes.int32)) != 0
    return fn(a, b)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices or vectors; further dimensions are batches."""
    if not a.ndim or not b.ndim:
        raise ValueError(f"matmul input operands must have ndim at least 1, got {a.ndim}, {b.ndim}")
    if a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise _unlike(a, b)
    return _exact(ops.matmul, a, b)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum over the last dimension of ``a`` and the one before the last of ``b``."""
    if not a.ndim or not b.ndim:
        return ops.logical_and(a, b) if a.dtype is dtypes.bool else a * b
    d = 0 if b.ndim == 1 else b.ndim - 2
    if a.shape[-1] != b.shape[d]:
        raise _unlike(a, b)
    return _exact(lambda x, y: ops.tensordot(x, y, ([a.ndim - 1], [d])), a, b)


def vdot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of conj(a) b over all elements."""
    return dot(ops.conj(a).reshape(-1), b.reshape(-1))


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The sum over the last dimensions."""
    if not a.ndim or not b.ndim:
        return dot(a, b)
    if a.shape[-1] != b.shape[-1]:
        raise _unlike(a, b)
    return _exact(lambda x, y: ops.tensordot(x, y, ([a.ndim - 1], [b.ndim - 1])), a, b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """All products of an element of ``a`` with one of ``b``."""
    one, two = a.reshape(-1, 1), b.reshape(1, -1)
    return ops.logical_and(one, two) if a.dtype is dtypes.bool else one * two


def tensordot(a: Tensor, b: Tensor, axes: Any = 2) -> Tensor:
    """The sum over pairs of dimensions: so many last and first ones, or lists of them."""
    if hasattr(axes, "__index__"):
        n = axes.__index__()
        if n > min(a.ndim, b.ndim):
            raise TypeError(f"Number of tensordot axes (axes {n}) exceeds input ranks "
                            f"({a.ndim} and {b.ndim})")  # fmt: skip
        one, two = tuple(range(a.ndim - n, a.ndim)), tuple(range(n))
    else:
        one, two = (axes_of(side, x.ndim) for side, x in zip(axes, (a, b)))
    if len(one) != len(two):
        raise TypeError(f"tensordot requires axes lists to have equal length, got {one} and {two}.")
    if [a.shape[d] for d in one] != [b.shape[d] for d in two]:
        raise _unlike(a, b)
    return _exact(lambda x, y: ops.tensordot(x, y, (list(one), list(two))), a, b)


def vecdot(x1: Tensor, x2: Tensor, axis: int = -1) -> Tensor:
    """The sum of conj(x1) x2 along ``axis``."""
    one, two = (ops.movedim(x, axis_of(axis, x.ndim), -1) for x in (x1, x2))
    if one.shape[-1] != two.shape[-1]:
        raise ValueError(
            f"jnp.vecdot: input operands have incompatible sizes: {one.shape[-1]}, {two.shape[-1]}"
        )
    return _exact(lambda x, y: ops.sum(ops.conj(x) * y, -1, dtype=x.dtype), one, two)


def matvec(x1: Tensor, x2: Tensor) -> Tensor:
    """Matrices times vectors."""
    return matmul(x1, ops.unsqueeze(x2, -1))[..., 0]


def vecmat(x1: Tensor, x2: Tensor) -> Tensor:
    """Vectors, conjugated, times matrices."""
    return matmul(ops.unsqueeze(ops.conj(x1), -2), x2)[..., 0, :]


def cross(
    a: Tensor, b: Tensor, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The vector product of vectors of 3 (or 2) elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (ops.movedim(x, axis_of(d, x.ndim), -1) for x, d in ((a, axisa), (b, axisb)))
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    if a.shape[-1] == b.shape[-1] == 2:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    a, b = (ops.pad(x, (0, 3 - x.shape[-1])) if x.shape[-1] < 3 else x for x in (a, b))
    terms = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    out = ops.stack(terms, -1)
    return ops.movedim(out, -1, axis_of(axisc, out.ndim))


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker's product."""
    n = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (n - x.ndim) + tuple(x.shape)) for x in (a, b))
    one = a.reshape([s for size in a.shape for s in (size, 1)])
    two = b.reshape([s for size in b.shape for s in (1, size)])
    product = ops.logical_and(one, two) if a.dtype is dtypes.bool else one * two
    return product.reshape([p * q for p, q in zip(a.shape, b.shape)])


def einsum(operands: Sequence[Tensor], subscripts: str) -> Tensor:
    """Einstein's sum; of bools whether one product holds."""
    if operands[0].dtype is dtypes.bool:
        return ops.einsum(subscripts, *[x.to(dtypes.int32) for x in operands]) != 0
    return ops.einsum(subscripts, *operands)


def subscripts(given: Sequence[Any]) -> tuple[str, list[Any]]:
    """Arrays and lists of dimensions by turns, as the text of ``einsum`` and the arrays."""

    def text(places: Any) -> str:
        return "".join("..." if p is Ellipsis else chr(97 + p) for p in places)

    joined = ",".join(map(text, given[1::2]))
    return joined + ("->" + text(given[-1]) if len(given) % 2 else ""), list(
        given[: len(given) // 2 * 2 : 2]
    )


def isclose(
    a: Tensor, b: Tensor, rtol: Tensor | float = 1e-5, atol: Tensor | float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:  # fmt: skip
    """Where two arrays differ by at most ``atol + rtol * |b|``."""
    if a.meta()[1].kind in "biu":
        a, b = (x.to(dtypes.float64) for x in (a, b))
    near = ops.abs(a - b) <= atol + rtol * ops.abs(b)
    close = ops.where(ops.isfinite(a) & ops.isfinite(b), near, a == b)
    return close | (ops.isnan(a) & ops.isnan(b)) if equal_nan else close


def allclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether ``isclose`` holds everywhere."""
    return ops.all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Tensor, a2: Tensor, equal_nan: bool = False) -> Tensor:
    """Whether shapes and elements are the same."""
    if tuple(a1.shape) != tuple(a2.shape):
        return ops.zeros((), dtype=dtypes.bool)
    same = a1 == a2
    if equal_nan and a1.meta()[1].kind not in "biu":
        same = same | (ops.isnan(a1) & ops.isnan(a2))
    return ops.all(same)


def array_equiv(a1: Tensor, a2: Tensor) -> Tensor:
    """Whether elements are the same once shapes are broadcast, if they can be."""
    pairs = zip(a1.shape[::-1], a2.shape[::-1])
    if any(n != m and 1 not in (n, m) for n, m in pairs):
        return ops.zeros((), dtype=dtypes.bool)
    return ops.all(a1 == a2)


def cov(
    m: Tensor, y: Tensor | None = None, rowvar: bool = True, bias: bool = False,
    ddof: int | None = None, fweights: Tensor | None = None, aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The covariances of variables (rows, or columns)."""
    x = _variables(m, y, rowvar)
    n = x.shape[1]
    weights = None if fweights is None else fweights.to(ops.real(x).dtype)
    if aweights is not None:
        weights = aweights.to(ops.real(x).dtype) * (1 if weights is None else weights)
    over: Any
    less = (0 if bias else 1) if ddof is None else ddof
    if weights is None:
        mean, over = ops.mean(x, 1, keepdim=True), n - less
    else:
        total = ops.sum(weights)
        mean = ops.sum(x * weights, 1, keepdim=True) / total
        rest = total if aweights is None else ops.sum(weights * aweights) / total
        over = total - less * rest if aweights is not None else total - less
    beside = x - mean
    other = beside if weights is None else beside * weights
    out = ops.matmul(other, ops.conj(ops.transpose(beside, 0, 1))) / over
    return out.reshape(()) if out.shape == (1, 1) else out


def _variables(m: Tensor, y: Tensor | None, rowvar: bool) -> Tensor:
    parts = []
    for x in (m, y):
        if x is None:
            continue
        if x.ndim > 2:
            raise ValueError("m has more than 2 dimensions")
        x = x.reshape(1, -1) if x.ndim < 2 else x
        parts.append(x if rowvar or x.shape[0] == 1 else ops.transpose(x, 0, 1))
    return ops.cat(parts, 0)


def corrcoef(x: Tensor, y: Tensor | None = None, rowvar: bool = True) -> Tensor:
    """Pearson's correlations."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    d = ops.sqrt(ops.real(ops.diagonal(c)))
    out = c / d.reshape(-1, 1) / d.reshape(1, -1)
    return out if out.is_complex() else ops.clamp(out, -1, 1)


def trapezoid(
    y: Tensor, x: Tensor | None = None, dx: Tensor | float = 1.0, axis: int = -1
) -> Tensor:
    """The area under lines between points."""
    d = axis_of(axis, y.ndim)
    y = ops.movedim(y, d, -1)
    if x is not None:
        dx = ops.diff(x if x.ndim == 1 else ops.movedim(x, axis_of(axis, x.ndim), -1))
    return 0.5 * ops.sum(dx * (y[..., 1:] + y[..., :-1]), -1)


def diff(
    a: Tensor, n: int = 1, axis: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The n-th differences of neighbours."""
    if not a.ndim:
        raise ValueError("diff requires input that is at least one dimensional; got shape ()")
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    d = axis_of(axis, a.ndim)
    if not n:
        return a
    edge = [1 if k == d else m for k, m in enumerate(a.shape)]
    ends = [p if p is None or p.ndim else ops.broadcast_to(p, edge) for p in (prepend, append)]
    a = ops.cat([p for p in (ends[0], a, ends[1]) if p is not None], d)
    for _ in range(n):
        m = a.shape[d]
        after, before = (
            ops.narrow(a, d, min(1, m), max(m - 1, 0)),
            ops.narrow(a, d, 0, max(m - 1, 0)),
        )
        a = after != before if a.dtype is dtypes.bool else after - before
    return a


def gradient(f: Tensor, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Slopes by central differences inside and plain ones at the ends, along each of ``axis``."""
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to gradient is not supported.")
    axes = axes_of(axis, f.ndim)
    gaps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    if len(gaps) != len(axes):
        raise TypeError("Invalid number of spacing arguments")
    out = []
    for d, gap in zip(axes, gaps):
        if f.shape[d] < 2:
            raise ValueError("Shape of array too small to calculate a numerical gradient, at least "
                             "2 elements are required.")  # fmt: skip
        spaced = isinstance(gap, Tensor) and gap.ndim
        out.append(ops.gradient(f, spacing=(gap,) if spaced else _number(gap), dim=d)[0])
    return out[0] if len(out) == 1 else out


def _number(gap: Any) -> float:
    return float(gap)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """Powers of each element as a row."""
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    n = x.shape[0] if N is None else N
    if not n:
        return x.new_zeros((x.shape[0], 0))
    powers = [ops.ones_like(x)]
    for _ in range(n - 1):
        powers.append(powers[-1] * x)
    return ops.stack(powers if increasing else powers[::-1], 1)
