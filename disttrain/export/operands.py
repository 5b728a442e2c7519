"""What the arguments of operations must be to each other, where forward functions rely on it: the
kernels of these read and write memory by the sizes of one argument. Layers see to it; a graph that
comes from a file has to be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backends.fused.recurrent.cells import MODES
from ..ops.primitives.pool import pooled_sizes
from ..ops.primitives.windows import out_sizes

_ORDERS = 1 << 10  # of derivatives: each takes as long


def fault(op: str, args: Sequence[Any], params: Mapping[str, Any]) -> str | None:
    """What is wrong with the shapes of an operation's arguments (arrays, numbers or None)."""
    rule = _RULES.get(op)
    if rule is not None and not (any(map(_is_array, args)) and rule(*args, **params)):
        shown = ", ".join(_shown(a) for a in args)
        return f"its arguments do not fit each other: {shown}"
    dim = params.get("dim")
    ndim = len(getattr(args[0], "shape", ())) if args else 0
    if op in _ALONG and type(dim) is int and not 0 <= dim < max(ndim, 1):
        return f"dimension {dim} of {ndim}"
    return None


def _shown(a: Any) -> str:
    return f"{a.dtype}{list(a.shape)}" if _is_array(a) else repr(a)


def _is_array(a: Any) -> bool:
    return hasattr(a, "shape")


def _vectors(n: int, *given: Any) -> bool:
    """Whether what is given are vectors of ``n`` numbers."""
    return all(a is None or (_is_array(a) and tuple(a.shape) == (n,)) for a in given)


def _channels(x: Any, *given: Any, **_: Any) -> bool:
    return len(x.shape) > 1 and _vectors(x.shape[1], *given)


def _groups(x: Any, *given: Any, groups: int, **_: Any) -> bool:
    return _channels(x, *given) and groups > 0 and x.shape[1] % groups == 0


# --- convolutions ---------------------------------------------------------------------------------
def _windows(ndim: int, stride: tuple, padding: tuple, dilation: tuple, groups: int) -> bool:
    """Whether numbers of windows are such numbers."""
    lengths = {len(stride), len(padding), len(dilation)}
    good = min((*stride, *dilation, groups), default=0) > 0 <= min(padding, default=0)
    return good and lengths == {ndim - 2} and ndim > 2


def _conv(x: Any, w: Any, *rest: Any, groups: int, **how: Any) -> bool:
    """Of x, a weight, and vectors of a number for each channel of the result."""
    ndim, made = len(x.shape), w.shape[0]
    how = {k: how[k] for k in ("stride", "padding", "dilation")}
    if len(w.shape) != ndim or not _windows(ndim, groups=groups, **how):
        return False
    whole = made % groups == 0 and x.shape[1] == w.shape[1] * groups
    return whole and min(out_sizes(x.shape[2:], w.shape[2:], **how)) >= 0 and _vectors(made, *rest)


def _input_grad(g_out: Any, w: Any, *, size: tuple, groups: int, **how: Any) -> bool:
    ndim = len(g_out.shape)
    if len(w.shape) != ndim or len(size) != ndim - 2 or not _windows(ndim, groups=groups, **how):
        return False
    return (g_out.shape[1] == w.shape[0] and w.shape[0] % groups == 0
            and _within(g_out.shape[2:], out_sizes(size, w.shape[2:], **how)))  # fmt: skip


def _weight_grad(g_out: Any, x: Any, *, kernel: tuple, groups: int, **how: Any) -> bool:
    ndim = len(g_out.shape)
    if len(x.shape) != ndim or len(kernel) != ndim - 2 or not _windows(ndim, groups=groups, **how):
        return False
    whole = g_out.shape[1] % groups == x.shape[1] % groups == 0
    if not whole or g_out.shape[0] != x.shape[0] or min(kernel) < 1:
        return False
    return _within(g_out.shape[2:], out_sizes(x.shape[2:], kernel, **how))


def _pooled(a: Any, best: Any, *, kernel: tuple, ceil_mode: bool, **how: Any) -> bool:
    """Of an input, the results of its windows, and how these lie."""
    ndim = len(a.shape)
    if len(best.shape) != ndim or len(kernel) != ndim - 2 or not _windows(ndim, groups=1, **how):
        return False
    if min(kernel) < 1 or a.shape[:2] != best.shape[:2]:
        return False
    return _within(best.shape[2:], pooled_sizes(a.shape[2:], kernel, ceil_mode=ceil_mode, **how))


def _pool_spread(g_out: Any, a: Any, best: Any, **how: Any) -> bool:
    given = all(map(_is_array, (g_out, a, best)))
    return given and g_out.shape == best.shape and _pooled(a, best, **how)


def _pool_pick(h: Any, a: Any, best: Any, **how: Any) -> bool:
    return all(map(_is_array, (h, a, best))) and h.shape == a.shape and _pooled(a, best, **how)


def _within(one: tuple, other: tuple) -> bool:
    return all(0 <= a <= b for a, b in zip(one, other, strict=True))


# --- products of integers -------------------------------------------------------------------------
def _integer_linear(
    x: Any, w: Any, scale: Any, sums: Any = None, b: Any = None, *, own: int = 0, **_: Any
) -> bool:
    if not all(map(_is_array, (x, w, scale))) or len(w.shape) != 2 or not 0 <= own < len(x.shape):
        return False
    rows, each = w.shape
    per_row = tuple(scale.shape) in ((), (1,), (rows,))
    return x.shape[-1] == each and w.dtype.kind == "i" and per_row and _vectors(rows, sums, b)


# --- others ---------------------------------------------------------------------------------------
def _ldl_solve(ld: Any, pivots: Any, b: Any, **_: Any) -> bool:
    *batch, rows, n = ld.shape if len(ld.shape) > 1 else (0, 1)
    right = tuple(b.shape[:-1]) == (*batch, n)
    return rows == n and tuple(pivots.shape) == (*batch, n) and right and ld.dtype == b.dtype


def _top_places(a: Any, k: int, dim: int, **_: Any) -> bool:
    return 0 <= dim < len(a.shape) and 0 <= k <= a.shape[dim]


def _sparse(rows: Any, cols: Any, *values: Any) -> bool:
    return len(rows.shape) == 1 and all(v.shape == rows.shape for v in (cols, *values))


def _recurrence(
    x: Any, w: Any, b: Any, h: Any, c: Any, p: Any, v: Any, mode: str, **_: Any
) -> bool:
    given = [a for a in (x, w, b, h, c, p, v) if a is not None]
    kinds = {a.dtype.char for a in given if _is_array(a)}
    if not all(map(_is_array, given)) or len(kinds) != 1 or not kinds <= set("fd"):
        return False
    if mode not in MODES or [len(a.shape) for a in (x, w, h)] != [3, 2, 2]:
        return False
    gates, rows = w.shape[0], x.shape[1]
    width, odd = divmod(gates, MODES[mode].gates)
    lstm = mode == "LSTM"
    first = width if p is None else w.shape[1]
    shapes = [(w, (gates, first)), (h, (rows, first)), (c, (rows, width)), (p, (first, width)),
              (v, (gates, x.shape[2])), (b, (gates,))]  # fmt: skip
    fits = all(a is None or tuple(a.shape) == shape for a, shape in shapes)
    fits = fits and not odd and lstm is (c is not None) and (lstm or p is None)
    return fits and (x.shape[2] == gates if v is None else mode != "GRU")


_RULES: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(("batch_norm", "batch_norm_known"), _channels), "group_norm": _groups,
    "conv": _conv, "integer_conv": lambda x, w, scale, b=None, **how: _conv(x, w, b, **how),
    "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad,
    "max_pool_spread": _pool_spread, "max_pool_pick": _pool_pick, "max_pool_indices": _pooled,
    **dict.fromkeys(("integer_linear", "dynamic_linear"), _integer_linear),
    "weight_int8_linear": lambda x, w, scale, b=None: _integer_linear(x, w, scale, None, b),
    "ldl_solve": _ldl_solve, "top_places": _top_places, "recurrence": _recurrence,
    "polygamma": lambda a, n: 0 <= n <= _ORDERS,
    "sparse_product": lambda values, b, rows, cols, **_: (
        _sparse(rows, cols, values) and len(b.shape) == 2),
    "sampled_product": lambda a, b, rows, cols: (
        _sparse(rows, cols) and len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1]),
}  # fmt: skip
# Operations that count dimensions from the first on alone.
_ALONG = frozenset(
    "argmax argmin argsort cat cumsum cumprod gather median_places put_along scatter softmax "
    "log_softmax split take unbind scatter_reduce".split()
)

__all__ = ["fault"]
