"""``tf.math`` and what of it stands at the top: tables of names, each with the operation's name in
graphs, the function that computes it and the types that it is there for."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ...arrays import slots
from .dispatch import COMPLEX, FLOATS, allow, binary, execute, named, op, plain, unary
from .errors import NAMES as NAMES_OF_ERRORS
from .tensor import convert, inner_type, matched
from .types import as_dtype

_special: Any = dt.special

INTS = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
NUMBERS = COMPLEX | INTS
REAL = FLOATS | INTS
BOOL = frozenset({"bool"})

_UNARY = {
    "abs": ("Abs", dt.abs, NUMBERS), "negative": ("Neg", dt.neg, NUMBERS),
    "exp": ("Exp", dt.exp, COMPLEX), "expm1": ("Expm1", dt.expm1, COMPLEX),
    "log": ("Log", dt.log, COMPLEX), "log1p": ("Log1p", dt.log1p, COMPLEX),
    "sqrt": ("Sqrt", dt.sqrt, COMPLEX), "rsqrt": ("Rsqrt", dt.rsqrt, COMPLEX),
    "square": ("Square", dt.square, NUMBERS), "reciprocal": ("Reciprocal", dt.reciprocal, COMPLEX),
    "sin": ("Sin", dt.sin, COMPLEX), "cos": ("Cos", dt.cos, COMPLEX),
    "tan": ("Tan", dt.tan, COMPLEX), "asin": ("Asin", dt.asin, COMPLEX),
    "acos": ("Acos", dt.acos, COMPLEX), "atan": ("Atan", dt.atan, COMPLEX),
    "sinh": ("Sinh", dt.sinh, COMPLEX), "cosh": ("Cosh", dt.cosh, COMPLEX),
    "tanh": ("Tanh", dt.tanh, COMPLEX), "asinh": ("Asinh", dt.asinh, COMPLEX),
    "acosh": ("Acosh", dt.acosh, COMPLEX), "atanh": ("Atanh", dt.atanh, COMPLEX),
    "sigmoid": ("Sigmoid", dt.sigmoid, COMPLEX), "erf": ("Erf", dt.erf, FLOATS),
    "erfc": ("Erfc", dt.erfc, FLOATS), "erfinv": ("Erfinv", dt.erfinv, FLOATS),
    "ndtri": ("Ndtri", _special.ndtri, FLOATS), "lgamma": ("Lgamma", dt.lgamma, FLOATS),
    "digamma": ("Digamma", dt.digamma, FLOATS), "floor": ("Floor", dt.floor, FLOATS),
    "ceil": ("Ceil", dt.ceil, FLOATS), "rint": ("Rint", dt.round, FLOATS),
    "sign": ("Sign", dt.sgn, NUMBERS), "bessel_i0": ("BesselI0", dt.i0, FLOATS),
    "bessel_i0e": ("BesselI0e", _special.i0e, FLOATS),
    "bessel_i1": ("BesselI1", _special.i1, FLOATS),
    "bessel_i1e": ("BesselI1e", _special.i1e, FLOATS),
    "softplus": ("Softplus", dt.nn.functional.softplus, FLOATS),
    "softsign": ("Softsign", dt.nn.functional.softsign, FLOATS),
    "log_sigmoid": ("LogSigmoid", dt.nn.functional.logsigmoid, FLOATS),
    "is_nan": ("IsNan", dt.isnan, FLOATS), "is_inf": ("IsInf", dt.isinf, FLOATS),
    "is_finite": ("IsFinite", dt.isfinite, FLOATS),
    "logical_not": ("LogicalNot", dt.logical_not, BOOL),
    "conj": ("Conj", lambda x: dt.conj(x).resolve_conj(), NUMBERS),
}  # fmt: skip
_BINARY = {
    "multiply": ("Mul", dt.mul, NUMBERS, True), "subtract": ("Sub", dt.sub, NUMBERS, True),
    "add": ("AddV2", dt.add, NUMBERS, True), "floordiv": ("FloorDiv", dt.floor_divide, REAL, True),
    "floormod": ("FloorMod", dt.remainder, REAL, False),
    "truncatediv": ("TruncateDiv", lambda x, y: dt.div(x, y, rounding_mode="trunc"), REAL, False),
    "truncatemod": ("TruncateMod", dt.fmod, REAL, False),
    "multiply_no_nan": ("MulNoNan", lambda x, y: dt.where(y == 0, dt.zeros_like(y), x * y), COMPLEX,
                        False),
    "maximum": ("Maximum", dt.maximum, REAL, False),
    "minimum": ("Minimum", dt.minimum, REAL, False), "pow": ("Pow", lambda x, y: _power(x, y),
        NUMBERS, False),
    "squared_difference": ("SquaredDifference", lambda x, y: dt.square(x - y), NUMBERS, False),
    "atan2": ("Atan2", dt.atan2, FLOATS, False), "xlogy": ("Xlogy", dt.xlogy, COMPLEX, False),
    "xlog1py": ("Xlog1py", _special.xlog1py, COMPLEX, False),
    "xdivy": ("Xdivy", lambda x, y: dt.where(x == 0, dt.zeros_like(x), x / y), COMPLEX, False),
    "igamma": ("Igamma", dt.igamma, FLOATS, False),
    "igammac": ("Igammac", dt.igammac, FLOATS, False),
    "polygamma": ("Polygamma", lambda a, x: _polygamma(a, x), FLOATS, False),
    "zeta": ("Zeta", _special.zeta, FLOATS, False),
    "nextafter": ("NextAfter", dt.nextafter, frozenset({"float32", "float64"}), False),
    "less": ("Less", dt.lt, REAL, False), "less_equal": ("LessEqual", dt.le, REAL, False),
    "greater": ("Greater", dt.gt, REAL, False),
    "greater_equal": ("GreaterEqual", dt.ge, REAL, False),
    "equal": ("Equal", dt.eq, None, False), "not_equal": ("NotEqual", dt.ne, None, False),
    "logical_and": ("LogicalAnd", dt.logical_and, BOOL, False),
    "logical_or": ("LogicalOr", dt.logical_or, BOOL, False),
    "logical_xor": ("LogicalXor", dt.logical_xor, BOOL, False),
}  # fmt: skip
BITWISE = {
    "bitwise_and": ("BitwiseAnd", dt.bitwise_and, INTS, False),
    "bitwise_or": ("BitwiseOr", dt.bitwise_or, INTS, False),
    "bitwise_xor": ("BitwiseXor", dt.bitwise_xor, INTS, False),
    "left_shift": ("LeftShift", dt.bitwise_left_shift, INTS, False),
    "right_shift": ("RightShift", dt.bitwise_right_shift, INTS, False),
}


def _power(x: Any, y: Any) -> Any:
    if not y.dtype.is_floating_point and not y.dtype.is_complex and bool((y < 0).any()):
        raise ValueError("Integers to negative integer powers are not allowed")
    return dt.pow(x, y)


def _polygamma(a: Any, x: Any) -> Any:
    orders = {int(n) for n in a.flatten().tolist()}
    found = x * 0
    for n in orders:
        found = dt.where(a == n, dt.polygamma(n, x), found)
    return found


def _no_nan(fn: Callable, x: Any, y: Any) -> Any:
    zero = y == 0
    return dt.where(zero, dt.zeros_like(y), fn(x, dt.where(zero, dt.ones_like(y), y)))


def _axes(t: Any, axis: Any) -> tuple:
    """The dimensions that ``axis`` names; an error in TensorFlow's words for what is none."""
    rank = t.ndim
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    for a in given:
        if not -rank <= a < rank:
            raise ValueError(f"Invalid reduction dimension ({a} for input with {rank} dimension(s)")
    return tuple(sorted({int(a) % rank for a in given}))


def _integral_mean(t: Any, dims: tuple, keep: bool) -> Any:
    if t.dtype.is_floating_point or t.dtype.is_complex:
        return dt.mean(t, dim=dims, keepdim=keep)
    count = 1
    for d in dims:
        count *= t.shape[d]
    return dt.div(dt.sum(t, dim=dims, keepdim=keep), max(count, 1), rounding_mode="trunc").to(
        t.dtype
    )


def _product(t: Any, dims: tuple, keep: bool) -> Any:
    for d in reversed(dims):
        t = dt.prod(t, dim=d, keepdim=keep)
    return t


def _spread(t: Any, dims: tuple, keep: bool) -> Any:
    return dt.var(t, dim=dims, keepdim=keep, correction=0)


def _extreme(which: str, empty: str) -> Callable:
    def reduce(t: Any, dims: tuple, keep: bool) -> Any:
        if all(t.shape[d] for d in dims):
            return getattr(dt, which)(t, dim=dims, keepdim=keep)
        about = dt.finfo(t.dtype) if t.dtype.is_floating_point else dt.iinfo(t.dtype)
        least = getattr(about, empty) if not t.dtype.is_floating_point else float(
            "-inf" if empty == "min" else "inf")  # fmt: skip
        sizes = [1 if d in dims else n for d, n in enumerate(t.shape) if keep or d not in dims]
        return dt.full(sizes, least, dtype=t.dtype)

    return reduce


_REDUCTIONS = {
    "reduce_sum": ("Sum", lambda t, d, k: dt.sum(t, dim=d, keepdim=k, dtype=t.dtype), NUMBERS),
    "reduce_mean": ("Mean", _integral_mean, NUMBERS),
    "reduce_prod": ("Prod", lambda t, d, k: _product(t, d, k).to(t.dtype), NUMBERS),
    "reduce_max": ("Max", _extreme("amax", "min"), REAL),
    "reduce_min": ("Min", _extreme("amin", "max"), REAL),
    "reduce_any": ("Any", lambda t, d, k: _booleans(dt.any, t, d, k), BOOL),
    "reduce_all": ("All", lambda t, d, k: _booleans(dt.all, t, d, k), BOOL),
    "reduce_logsumexp": ("LogSumExp", lambda t, d, k: dt.logsumexp(t, dim=d, keepdim=k), FLOATS),
    "reduce_variance": ("Variance", _spread, FLOATS),
    "reduce_std": ("Std", lambda t, d, k: dt.sqrt(_spread(t, d, k)), FLOATS),
    "reduce_euclidean_norm": (
        "EuclideanNorm", lambda t, d, k: dt.linalg.vector_norm(t, dim=d, keepdim=k), COMPLEX
    ),
}  # fmt: skip


def _booleans(fn: Callable, t: Any, dims: tuple, keep: bool) -> Any:
    for d in reversed(dims):
        t = fn(t, dim=d, keepdim=keep)
    return t


def _reduction(word: str, kind: str, fn: Callable, allowed: frozenset) -> Callable:
    def function(
        input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
    ) -> Any:
        t, dims = convert(input_tensor), plain(axis)
        allow(kind, t, allowed)

        def call(value: Any) -> Any:
            found = _axes(value, dims)
            if not found:
                return fn(value.reshape(1), (0,), False) if not value.ndim else value.clone()
            return fn(value, found, bool(keepdims))

        return execute(kind, call, [t], name, ("input",))

    return named(function, word)


def _argument(word: str, kind: str, fn: Callable) -> Callable:
    def function(
        input: Any,  # noqa: A002
        axis: Any = None, output_type: Any = "int64", name: str | None = None,
    ) -> Any:  # fmt: skip
        t, dim, wide = convert(input), plain(axis) or 0, inner_type(output_type)
        allow(kind, t, REAL | BOOL)
        return execute(
            kind, lambda v: fn(v.byte() if t.dtype.is_bool else v, dim=dim).to(wide), [t], name
        )

    return named(function, word)


def _scan(word: str, kind: str, fn: Callable, neutral: float) -> Callable:
    def function(
        x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False,
        name: str | None = None,
    ) -> Any:  # fmt: skip
        t, dim = convert(x), plain(axis)
        allow(kind, t, NUMBERS)

        def call(v: Any) -> Any:
            v = dt.flip(v, [dim]) if reverse else v
            if exclusive:
                first = dt.full_like(v.narrow(dim, 0, 1), neutral)
                v = dt.cat([first, v.narrow(dim, 0, v.shape[dim] - 1)], dim)
            found = fn(v, dim=dim).to(v.dtype)
            return dt.flip(found, [dim]) if reverse else found

        return execute(kind, call, [t], name)

    return named(function, word)


def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """``x / y``; of integers in floating point (float32 for those of up to 16 bits)."""
    first = convert(x)
    second = convert(y, hint=first.dtype)
    if first.dtype is not second.dtype or first.dtype.is_bool:
        raise TypeError(
            f"`x` and `y` must have the same dtype, got {first.dtype!r} != {second.dtype!r}."
        )
    pair = [first, second]
    if pair[0].dtype.is_integer:
        wide = "float32" if pair[0].dtype.size <= 2 else "float64"
        pair = [cast(t, wide) for t in pair]
    return execute("RealDiv", dt.div, pair, name, ("x", "y"))


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """``x`` in another type: floats to integers toward zero, complex numbers to their real
    parts."""
    t, kind = convert(x), as_dtype(dtype)
    if t.dtype is kind:
        return t
    if kind.inner is None or t.dtype.inner is None:
        return execute("Cast", lambda v: _no_cast(t.dtype, kind), [t], name)
    wide = kind.inner
    if t.dtype.is_complex and not kind.is_complex:
        return execute("Cast", lambda v: dt.real(v).to(wide), [t], name)
    return execute("Cast", lambda v: v.to(wide), [t], name)


def _no_cast(one: Any, other: Any) -> Any:
    message = f"Cast {one.word} to {other.word} is not supported [Op:Cast]"
    raise NAMES_OF_ERRORS["UnimplementedError"](None, None, message)


def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """``x / y``, and 0 where ``y`` is 0."""
    pair = matched("DivNoNan", [x, y], True)
    pair = [cast(t, "float64") for t in pair] if pair[0].dtype.is_integer else pair
    allow("DivNoNan", pair[0], COMPLEX)
    return execute("DivNoNan", lambda a, b: _no_nan(dt.div, a, b), pair, name)


@op("Round", "x", types=NUMBERS)
def round(x):  # noqa: A001
    return dt.round(x) if x.dtype.is_floating_point else x


@op("ClipByValue", same="t clip_value_min clip_value_max")
def clip_by_value(t, clip_value_min, clip_value_max):
    return dt.maximum(dt.minimum(t, clip_value_max), clip_value_min)


@op("AddN", "inputs*")
def add_n(inputs):
    found = inputs[0]
    for t in inputs[1:]:
        if t.shape != found.shape:
            raise ValueError("Inputs to operation AddN must have the same size and shape.")
        found = found + t
    return found


@op("MatMul", same="a b", types=NUMBERS)
def matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False,
           a_is_sparse=False, b_is_sparse=False, output_type=None):  # fmt: skip
    if min(a.ndim, b.ndim) < 2:
        raise ValueError("In[0] ndims must be >= 2")
    a = a.transpose(-1, -2) if transpose_a or adjoint_a else a
    b = b.transpose(-1, -2) if transpose_b or adjoint_b else b
    a = dt.conj(a) if adjoint_a and a.dtype.is_complex else a
    b = dt.conj(b) if adjoint_b and b.dtype.is_complex else b
    return dt.matmul(a, b)


@op("MatVec", same="a b")
def matvec(a, b, transpose_a=False):
    a = a.transpose(-1, -2) if transpose_a else a
    return dt.matmul(a, b.unsqueeze(-1)).squeeze(-1)


@op("TensorDot", same="a b")
def tensordot(a, b, axes):
    if isinstance(axes, int):
        return dt.tensordot(a, b, dims=axes)
    first, second = ([x] if isinstance(x, int) else list(x) for x in axes)
    return dt.tensordot(a, b, dims=(first, second))


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """The sum of products that ``equation`` says."""
    found = matched("Einsum", list(inputs))
    return execute("Einsum", lambda *values: dt.einsum(equation, *values), found,
                   kwargs.get("name"))  # fmt: skip


TopKV2 = namedtuple("TopKV2", ["values", "indices"])


@op("TopKV2", "input", out=lambda found: TopKV2(*found))
def top_k(input, k=1, sorted=True, index_type="int32"):  # noqa: A002
    if k > input.shape[-1]:
        raise ValueError(f"input must have at least k columns. Had {input.shape[-1]}, needed {k}")
    values, places = dt.sort(input, dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k].to(inner_type(index_type))


@op("InTopKV2", "targets predictions")
def in_top_k(targets, predictions, k):
    own = predictions.gather(1, targets.long().unsqueeze(1))
    return (predictions > own).sum(1) < k


@op("Bincount", "arr weights")
def bincount(arr, weights=None, minlength=None, maxlength=None, dtype="int32", axis=None,
             binary_output=False):  # fmt: skip
    flat = arr.flatten().long()
    found = dt.bincount(flat, None if weights is None else weights.flatten(), minlength or 0)
    found = found if maxlength is None else found[:maxlength]
    found = (found > 0).int() if binary_output else found
    return found.to(inner_type(dtype)) if weights is None else found.to(weights.dtype)


@op("ConfusionMatrix", "labels predictions weights")
def confusion_matrix(labels, predictions, num_classes=None, weights=None, dtype="int32"):
    n = num_classes or int(dt.maximum(labels.max(), predictions.max())) + 1
    kind = inner_type(dtype)
    ones = dt.ones(labels.shape, dtype=kind) if weights is None else weights.to(kind)
    return slots.confusion_matrix(labels, predictions, ones, n)


def _segment(word: str, kind: str, how: str, counted: bool) -> Callable:
    """A reduction of rows that have the same number; ``counted``: of how many there are."""

    def several(data, segment_ids, num_segments):
        return slots.segment_reduce(data, segment_ids, how, int(num_segments))

    def sorted_only(data, segment_ids):
        return slots.segment_reduce(data, segment_ids, how)

    return named(op(kind, "data segment_ids")(several if counted else sorted_only), word)


_SEGMENTS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}

NAMES: dict[str, Any] = {
    **{word: unary(word, *row) for word, row in _UNARY.items()},
    **{word: binary(word, *row) for word, row in _BINARY.items()},
    **{word: _reduction(word, *row) for word, row in _REDUCTIONS.items()},
    "argmax": _argument("argmax", "ArgMax", dt.argmax),
    "argmin": _argument("argmin", "ArgMin", dt.argmin),
    "cumsum": _scan("cumsum", "Cumsum", dt.cumsum, 0),
    "cumprod": _scan("cumprod", "Cumprod", dt.cumprod, 1),
    "cumulative_logsumexp": _scan("cumulative_logsumexp", "CumulativeLogsumexp", dt.logcumsumexp,
                                  float("-inf")),
    **{f"segment_{w}": _segment(f"segment_{w}", f"Segment{w.title()}", how, False)
       for w, how in _SEGMENTS.items()},
    **{f"unsorted_segment_{w}": _segment(f"unsorted_segment_{w}", f"UnsortedSegment{w.title()}",
        how,
                                         True) for w, how in _SEGMENTS.items()},
    "real": unary("real", "Real", lambda x: dt.real(x) if x.dtype.is_complex else x),
    "imag": unary("imag", "Imag", lambda x: dt.imag(x) if x.dtype.is_complex else dt.zeros_like(x)),
    "angle": unary("angle", "Angle", dt.angle),
    "divide_no_nan": divide_no_nan, "divide": divide, "truediv": divide, "round": round,
        "add_n": add_n, "top_k": top_k,
    "in_top_k": in_top_k, "bincount": bincount, "confusion_matrix": confusion_matrix,
    "accumulate_n": add_n,
    "special": None,
}  # fmt: skip
del NAMES["special"]
NAMES |= {
    "mod": NAMES["floormod"],
    "invert_permutation": unary(
        "invert_permutation", "InvertPermutation", lambda x: dt.argsort(x).to(x.dtype), INTS
    ),
}
BITS = {word: binary(word, *row) for word, row in BITWISE.items()}
BITS["invert"] = unary("invert", "Invert", dt.bitwise_not, INTS)
# What of it stands at the top, too.
TOP = """abs add acos acosh argmax argmin asin asinh atan atan2 atanh cos cosh cumsum divide equal
exp floor greater greater_equal less less_equal logical_and logical_not logical_or maximum minimum
multiply negative not_equal pow reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean
reduce_min reduce_prod reduce_sum round sigmoid sign sin sinh sqrt square subtract tan tanh truediv
add_n""".split()
EXTRA = {"truncatediv": NAMES.pop("truncatediv"), "truncatemod": NAMES.pop("truncatemod"),
    "cast": cast, "clip_by_value": clip_by_value, "matmul": matmul, "einsum": einsum,
         "tensordot": tensordot, "complex": binary("complex", "Complex", dt.complex,
             FLOATS)}  # fmt: skip
