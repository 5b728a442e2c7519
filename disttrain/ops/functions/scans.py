"""Running extremes, and what is told of neighbours along a dimension: differences, integrals."""

from __future__ import annotations

import math as _math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.annotations import Number
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import DimError, DTypeError, ShapeError
from ..primitives import elementwise as el
from ..promotion import result_type
from . import elementwise as math
from .args import kinds, one_dim
from .args import tensor as as_input
from .creation.create import arange
from .gathering import gather
from .sort import ValuesIndices
from .views.join import cat
from .views.shapes import broadcast_to, expand, reshape, unsqueeze
from .views.split import narrow


# --- running -----------------------------------------------------------------------------------
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """The largest element so far along ``dim`` (nan is the largest), and where it is: the last of
    equal ones."""
    return _running("cummax", math.ge, input, dim)


def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """The smallest element so far along ``dim`` (nan is the smallest), and where it is: the last
    of equal ones."""
    return _running("cummin", math.le, input, dim)


def _running(where: str, beats: Callable[..., Tensor], input: Tensor, dim: int) -> ValuesIndices:
    kinds(where, "biufV" if as_input(input, where).ndim else "biufVc", input)
    d = one_dim(dim, input.ndim, where)
    if not input.ndim:
        return ValuesIndices(el.copy(input), el.isnan(input.detach()).long() * 0)
    n = input.shape[d]
    line = (1,) * d + (n,) + (1,) * (input.ndim - d - 1)
    places = reshape(arange(n, device=input.device), line)
    places = expand(places, tuple(input.shape))
    best, step = input.detach(), 1
    while step < n:  # each knows the best of the ``step`` elements up to itself
        left, right = narrow(best, d, 0, n - step), narrow(best, d, step, n - step)
        newer = _newer(beats, left, right)
        kept = narrow(best, d, 0, step), narrow(places, d, 0, step)
        sides = narrow(places, d, 0, n - step), narrow(places, d, step, n - step)
        best = cat([kept[0], el.where(newer, right, left)], d)
        places = cat([kept[1], el.where(newer, sides[1], sides[0])], d)
        step *= 2
    places = places if n > 1 else el.copy(places)
    return ValuesIndices(gather(input, d, places), places)


def _newer(beats: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    if not left.dtype.is_floating_point:
        return beats(right, left)
    known = el.logical_not(el.isnan(left))
    return el.logical_or(el.isnan(right), el.logical_and(known, beats(right, left)))


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """``log(cumsum(exp(input), dim))`` without overflow."""
    kinds("logcumsumexp", "fVc", as_input(input, "logcumsumexp"))
    d = one_dim(dim, input.ndim, "logcumsumexp")
    if not input.ndim or input.shape[d] < 2:
        return el.copy(input)
    out, n, step = input, input.shape[d], 1
    while step < n:
        sums = math.logaddexp(narrow(out, d, step, n - step), narrow(out, d, 0, n - step))
        out = cat([narrow(out, d, 0, step), sums], d)
        step *= 2
    if out.dtype.is_complex:  # nothing has no angle
        return el.where(out.real == -_math.inf, complex(-_math.inf, 0), out)
    return out


# --- neighbours --------------------------------------------------------------------------------
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """What each element along ``dim`` is more than the one before it, ``n`` times over; of
    booleans whether they differ. ``prepend`` and ``append`` are joined to the input first."""
    if not as_input(input, "diff").ndim:
        raise ShapeError("diff: diff expects input to be at least one-dimensional; shape [] given")
    d = one_dim(dim, input.ndim, "diff")
    if n < 0:
        raise ShapeError(f"diff: order must be non-negative but got {n}")
    if n == 0:
        return el.copy(input)
    parts = [_edge(input, prepend, d), input, _edge(input, append, d)]
    x = cat([part for part in parts if part is not None], d)
    for _ in range(min(n, x.shape[d])):
        x = _steps(x, d)
    return x


def _edge(input: Tensor, part: Tensor | None, d: int) -> Tensor | None:
    if part is not None and part.ndim not in (0, input.ndim):
        raise ShapeError(
            "diff expects prepend or append to be the same dimension as input, but shapes "
            f"{list(part.shape)} and {list(input.shape)} were given"
        )
    if part is None:
        return None
    if part.ndim:
        for i, (n, m) in enumerate(zip(part.shape, input.shape, strict=True)):
            if n != m and i != d:
                raise ShapeError(
                    "diff expects the shape of tensor to prepend or append to match that of input "
                    f"except along the differencing dimension; input.size({i}) = {m}, but got "
                    f"tensor.size({i}) = {n}"
                )
        return part
    return expand(part, (*input.shape[:d], 1, *input.shape[d + 1 :]))


def _sides(x: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """All elements along ``d`` but the first, and all but the last."""
    m = max(x.shape[d] - 1, 0)
    return narrow(x, d, min(1, x.shape[d]), m), narrow(x, d, 0, m)


def _steps(x: Tensor, d: int) -> Tensor:
    after, before = _sides(x, d)
    if x.dtype is dtypes.bool:
        return el.logical_xor(after, before)
    return after - before


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1
) -> Tensor:
    """The integral along ``dim`` by the trapezoidal rule: at the places ``x``, or ``dx`` apart."""
    d = one_dim(dim, as_input(y, "trapezoid").ndim, "trapezoid")
    if x is None and not y.shape[d]:
        return (y.new_zeros(y.shape) * 1.0).sum(d)
    return _areas("trapezoid", y, x, dx, d).sum(d)


def trapz(y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1) -> Tensor:
    """``trapezoid``."""
    return trapezoid(y, x, dx=dx, dim=dim)


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1
) -> Tensor:
    """The running integral along ``dim`` by the trapezoidal rule; one element fewer than ``y``."""
    d = one_dim(dim, as_input(y, "cumulative_trapezoid").ndim, "cumulative_trapezoid")
    return _areas("cumulative_trapezoid", y, x, dx, d).cumsum(d)


def _areas(where: str, y: Tensor, x: Tensor | None, dx: Number | None, d: int) -> Tensor:
    given = [t for t in (y, x) if t is not None]
    if any(t.dtype is dtypes.bool for t in given):
        raise DTypeError(
            f"{where}: received a bool input for `x` or `y`, but bool is not supported"
        )
    after, before = _sides(y, d)
    if x is None:
        return (after + before) * (1.0 if dx is None else dx) / 2.0
    if x.ndim == 1 and y.ndim > 1:
        if x.shape[0] != y.shape[d]:
            raise ShapeError(
                f"{where}: There must be one `x` value for each sample point; {x.shape[0]} given "
                f"for dimension {d} of size {y.shape[d]}"
            )
        x = reshape(x, (-1,) + (1,) * (y.ndim - d - 1))
    else:
        x = reshape(x, (1,) * (y.ndim - x.ndim) + tuple(x.shape))
    place = d - y.ndim + x.ndim
    if not 0 <= place < x.ndim:
        raise DimError(f"{where}: x of shape {list(x.shape)} has no dimension {d} of y")
    later, earlier = _sides(x, place)
    return (later - earlier) * (after + before) / 2.0


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> list[Tensor]:
    """The derivatives along each of ``dim`` (None: all) by central differences; at the ends by
    one-sided ones of order ``edge_order``. ``spacing``: the distance, or one per dimension, or
    the coordinates of each (a tensor per dimension)."""
    if edge_order not in (1, 2):
        raise ShapeError("gradient: torch.gradient only supports edge_order=1 and edge_order=2.")
    if dim is None:
        over = list(range(input.ndim))
    else:
        over = [
            one_dim(d, input.ndim, "gradient") for d in ([dim] if isinstance(dim, int) else dim)
        ]
    if len(set(over)) != len(over):
        raise DimError(f"gradient: dim={dim} names a dimension twice")
    gaps = [spacing] * len(over) if isinstance(spacing, (int, float, complex)) else list(spacing)
    if isinstance(spacing, Tensor) or len(gaps) != len(over):
        raise ShapeError(
            f"gradient: expected spacing to be a scalar or a list of one element per dimension "
            f"({len(over)}), but got {spacing!r}"
        )
    for d in over:
        if input.shape[d] < edge_order + 1:
            raise ShapeError(
                "gradient: expected each dimension size to be at least edge_order+1; dimension "
                f"{d} of shape {list(input.shape)} is not"
            )
    x = input if input.dtype.is_floating_point or input.dtype.is_complex else input.float()
    return [_slope(x, d, gap, edge_order) for d, gap in zip(over, gaps, strict=True)]


def _slope(x: Tensor, d: int, gap: Any, order: int) -> Tensor:
    n = x.shape[d]
    x = x.to(result_type(x, gap))
    if isinstance(gap, Tensor) and gap.ndim:
        if gap.ndim != 1 or gap.shape[0] != n:
            raise ShapeError(
                "gradient: expected each element of spacing to have one dimension and the size "
                f"{n}, but got {list(gap.shape)}"
            )
        gaps = reshape(_steps(gap, 0), (-1,) + (1,) * (x.ndim - d - 1))
    else:
        gaps = broadcast_to(_number(x, gap), (n - 1,) + (1,) * (x.ndim - d - 1))
    slopes = _steps(x, d) / gaps
    first, last = narrow(slopes, d, 0, 1), narrow(slopes, d, n - 2, 1)
    later, earlier = _sides(gaps, 0)
    if isinstance(gap, Tensor) and gap.ndim:
        after, before = _sides(slopes, d)
        inner = (before * later + after * earlier) / (later + earlier)
    else:  # so that the element between does not matter
        inner = (narrow(x, d, 2, n - 2) - narrow(x, d, 0, n - 2)) / (later + earlier)
    if order == 2:
        first, last = _ends(gaps, slopes, d, n)
    return cat([first, inner, last], d)


def _number(x: Tensor, gap: Any) -> Tensor:
    return gap if isinstance(gap, Tensor) else x.new_full((), gap)


def _ends(steps: Tensor, slopes: Tensor, d: int, n: int) -> tuple[Tensor, Tensor]:
    """The derivatives at both ends of the parabolas through three elements."""
    h = [narrow(steps, 0, i, 1) for i in (0, 1, n - 3, n - 2)]
    s = [narrow(slopes, d, i, 1) for i in (0, 1, n - 3, n - 2)]
    first = s[0] - (s[1] - s[0]) * h[0] / (h[0] + h[1])
    last = s[3] + (s[3] - s[2]) * h[3] / (h[2] + h[3])
    return first, last


# --- covariance --------------------------------------------------------------------------------
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The covariances of the rows of ``input``, whose columns are observations: ``fweights``
    counts each, ``aweights`` weighs each. Divides by the weights' sum less ``correction``."""
    if as_input(input, "cov").ndim > 2:
        raise ShapeError(
            "cov: expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    if input.dtype is dtypes.bool:
        raise DTypeError("cov: bool dtype is not supported for input")
    x = input if input.ndim == 2 else reshape(input, (1, -1))
    weights = _weights(x.shape[1], fweights, aweights)
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        x = x.to(dtypes.get_default_dtype())
    total = x.shape[1] if weights is None else weights.sum()
    mean = x.sum(1, True) / total if weights is None else (x * weights).sum(1, True) / total
    free: Any = total - correction
    if weights is not None and aweights is not None and correction:
        free = total - correction * (weights * aweights).sum() / total
    free = math.clamp(free, min=0) if isinstance(free, Tensor) else max(free, 0)
    centred = x - mean
    other = centred if weights is None else centred * weights
    product = centred @ el.conj(other.T) if x.dtype.is_complex else centred @ other.T
    product = product / free if isinstance(free, Tensor) else product / float(free)
    return product.squeeze() if input.ndim < 2 else _matrix_of(product)


def _matrix_of(product: Tensor) -> Tensor:
    return product.squeeze() if product.shape[0] == 1 else product


def _weights(n: int, counts: Tensor | None, shares: Tensor | None) -> Tensor | None:
    for name, given in (("fweights", counts), ("aweights", shares)):
        if given is None:
            continue
        if given.ndim > 1 or given.numel() != n:
            raise ShapeError(
                f"cov: expected {name} to have one number for each of the {n} observations; "
                f"shape {list(given.shape)} given"
            )
        whole = not given.dtype.is_floating_point and not given.dtype.is_complex
        if (name == "fweights") != whole:
            needed = "integral" if name == "fweights" else "floating point"
            raise DTypeError(f"cov: expected {name} to have {needed} dtype; {given.dtype!r} given")
        if given.numel() and bool((given < 0).any()):
            raise ShapeError(f"cov: {name} cannot be negative")
    if counts is None or shares is None:
        return shares if counts is None else counts
    return counts * shares


def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlation coefficients of the rows of ``input``; between -1 and 1."""
    if as_input(input, "corrcoef").ndim > 2:
        raise ShapeError(
            "corrcoef: expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    c = cov(input)
    if not c.ndim:
        return c / c
    spread = math.sqrt(el.real(c.diagonal()) if c.dtype.is_complex else c.diagonal())
    out = c / unsqueeze(spread, 1) / unsqueeze(spread, 0)
    return out if out.dtype.is_complex else math.clamp(out, -1, 1)


__all__ = [
    "corrcoef",
    "cov",
    "cummax",
    "cummin",
    "cumulative_trapezoid",
    "diff",
    "gradient",
    "logcumsumexp",
    "trapezoid",
    "trapz",
]
