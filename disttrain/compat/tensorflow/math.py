"""``tf.math``, ``tf.bitwise`` and what of them stands at the top: tables of names, each with the
operation's name in graphs, the function that computes it and the types that it is there for."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import disttrain as dt

from ...arrays import normalizing, slots, systems, totals
from ...arrays.general.words import polygamma
from ...nn import logits
from .dispatch import COMPLEX, FLOATS, allow, binary, execute, matched, op, table, unary
from .errors import NAMES as ERRORS
from .tensor import convert
from .types import as_dtype

INTS = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
NUMBERS, REAL, BOOL = COMPLEX | INTS, FLOATS | INTS, frozenset({"bool"})
_PLACES: tuple[Any, ...] = (dt, dt.special, dt.nn.functional)


def _found(texts: dict, special: dict, make: Callable, **how: Any) -> dict[str, Callable]:
    """Functions of one name here and there: ``name[:Kind][=native name]`` by types."""
    out = {}
    for types, text in texts.items():
        for part in text.split():
            head, _, native = part.partition("=")
            word, _, kind = head.partition(":")
            fn: Any = special.get(word) or next(
                getattr(p, native or word) for p in _PLACES if hasattr(p, native or word)
            )
            kind = kind or "".join(w[0].upper() + w[1:] for w in word.split("_"))
            out[word] = make(word, kind, fn, types, **how)
    return out


_UNARY = _found(
    {
        COMPLEX: """exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh
            tanh asinh acosh atanh sigmoid""",
        FLOATS: """erf erfc erfinv ndtri lgamma digamma floor ceil rint=round bessel_i0=i0
            bessel_i0e=i0e bessel_i1=i1 bessel_i1e=i1e softplus softsign log_sigmoid=logsigmoid
            is_nan=isnan is_inf=isinf is_finite=isfinite""",
        NUMBERS: "abs square negative:Neg=neg sign=sgn conj round",
        BOOL: "logical_not", INTS: "invert_permutation", None: "real imag angle",
    },
    {"conj": lambda x: dt.conj(x).resolve_conj(),
     "round": lambda x: dt.round(x) if x.dtype.is_floating_point else x,
     "real": lambda x: dt.real(x) if x.dtype.is_complex else x,
     "imag": lambda x: dt.imag(x) if x.dtype.is_complex else dt.zeros_like(x),
     "invert_permutation": lambda x: dt.argsort(x).to(x.dtype)}, unary)  # fmt: skip


def _power(x: Any, y: Any) -> Any:
    if not y.dtype.is_floating_point and not y.dtype.is_complex and bool((y < 0).any()):
        raise ValueError("Integers to negative integer powers are not allowed")
    return dt.pow(x, y)


def _no_nan(x: Any, y: Any) -> Any:
    return dt.where(y == 0, dt.zeros_like(y), x / dt.where(y == 0, dt.ones_like(y), y))


_SPECIAL = {
    "truncatediv": lambda x, y: dt.div(x, y, rounding_mode="trunc"), "truncatemod": dt.fmod,
    "multiply_no_nan": lambda x, y: dt.where(y == 0, dt.zeros_like(y), x * y),
    "pow": _power, "squared_difference": lambda x, y: dt.square(x - y), "polygamma": polygamma,
    "xdivy": lambda x, y: dt.where(x == 0, dt.zeros_like(x), x / y),
}  # fmt: skip
_BINARY = {
    **_found({NUMBERS: "multiply:Mul subtract:Sub add:AddV2",
              REAL: "floordiv:FloorDiv=floor_divide"}, {}, binary, first=True),
    **_found({
        REAL: """floormod:FloorMod=remainder truncatediv:TruncateDiv truncatemod:TruncateMod maximum
            minimum less less_equal greater greater_equal""",
        NUMBERS: "pow squared_difference", COMPLEX: "multiply_no_nan:MulNoNan xlogy xlog1py xdivy",
        FLOATS: "atan2 igamma igammac polygamma zeta", None: "equal=eq not_equal=ne",
        frozenset({"float32", "float64"}): "nextafter:NextAfter",
        BOOL: "logical_and logical_or logical_xor",
    }, _SPECIAL, binary),
}  # fmt: skip
BITS = {
    **_found({INTS: """bitwise_and bitwise_or bitwise_xor left_shift=bitwise_left_shift
                 right_shift=bitwise_right_shift"""}, {}, binary),
    "invert": unary("invert", "Invert", dt.bitwise_not, INTS),
}  # fmt: skip


def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """``x / y``; of integers in floating point (float32 for those of up to 16 bits)."""
    first = convert(x)
    second = convert(y, hint=first.dtype)
    if first.dtype is not second.dtype or first.dtype.is_bool:
        raise TypeError(
            f"`x` and `y` must have the same dtype, got {first.dtype!r} != {second.dtype!r}."
        )
    pair = [first, second]
    if first.dtype.is_integer:
        wide = "float32" if first.dtype.size <= 2 else "float64"
        pair = [cast(t, wide) for t in pair]
    return execute("RealDiv", dt.div, pair, name, ("x", "y"))


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """``x`` in another type: floats to integers toward zero, complex numbers to their real
    parts."""
    t, kind = convert(x), as_dtype(dtype)
    if t.dtype is kind:
        return t
    wide, real = kind.inner, t.dtype.is_complex and not kind.is_complex
    if wide is None or t.dtype.inner is None:
        raise ERRORS["UnimplementedError"](
            None, None, f"Cast {t.dtype.word} to {kind.word} is not supported [Op:Cast]"
        )
    return execute("Cast", lambda v: (dt.real(v) if real else v).to(wide), [t], name)


def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """``x / y``, and 0 where ``y`` is 0."""
    pair = matched("DivNoNan", [x, y], True)
    pair = [cast(t, "float64") for t in pair] if pair[0].dtype.is_integer else pair
    allow("DivNoNan", pair[0], COMPLEX)
    return execute("DivNoNan", _no_nan, pair, name)


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """The sum of products that ``equation`` says."""
    found = matched("Einsum", list(inputs))
    return execute("Einsum", lambda *values: dt.einsum(equation, *values), found,
                   kwargs.get("name"))  # fmt: skip


def _confusion(labels: Any, predictions: Any, classes: Any, weights: Any, kind: Any) -> Any:
    n = classes or int(dt.maximum(labels.max(), predictions.max())) + 1
    ones = dt.ones(labels.shape, dtype=kind) if weights is None else weights.to(kind)
    return slots.confusion_matrix(labels, predictions, ones, n)


def _top(x: Any, k: int, kind: Any) -> Any:
    if k > x.shape[-1]:
        raise ValueError(f"input must have at least k columns. Had {x.shape[-1]}, needed {k}")
    values, places = dt.sort(x, dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k].to(kind)


TopKV2 = namedtuple("TopKV2", ["values", "indices"])
_SEGMENTS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
_AXES, _SCAN = "input_tensor! axis=None keepdims=False", "x! axis=0 exclusive=False reverse=False"
_ROWS: dict[str, tuple] = {
    **{f"reduce_{word}": (kind, fn, _AXES, types) for word, kind, fn, types in (
        ("sum", "Sum", totals.total, NUMBERS), ("mean", "Mean", totals.mean, NUMBERS),
        ("prod", "Prod", totals.product, NUMBERS), ("max", "Max", totals.greatest, REAL),
        ("min", "Min", totals.least, REAL), ("any", "Any", totals.some, BOOL),
        ("all", "All", totals.every, BOOL), ("logsumexp", "LogSumExp", totals.logsumexp, FLOATS),
        ("variance", "Variance", totals.variance, FLOATS),
        ("std", "Std", totals.deviation, FLOATS),
        ("euclidean_norm", "EuclideanNorm", totals.length, COMPLEX))},
    **{f"arg{w}": (f"Arg{w.title()}", getattr(totals, f"arg{w}"),
                   "input! axis=None output_type@='int64'", REAL | BOOL) for w in ("max", "min")},
    "cumsum": ("Cumsum", totals.cumsum, _SCAN, NUMBERS),
    "cumprod": ("Cumprod", totals.cumprod, _SCAN, NUMBERS),
    "cumulative_logsumexp": ("CumulativeLogsumexp", totals.cumulative_logsumexp, _SCAN, NUMBERS),
    **{f"segment_{w}": (f"Segment{w.title()}", lambda x, ids, how=how: slots.segment_reduce(
        x, ids, how), "data! segment_ids!") for w, how in _SEGMENTS.items()},
    **{f"unsorted_segment_{w}": (
        f"UnsortedSegment{w.title()}", lambda x, ids, n, how=how: slots.segment_reduce(
            x, ids, how, int(n)), "data! segment_ids! num_segments")
       for w, how in _SEGMENTS.items()},
    "add_n": ("AddN", normalizing.same_shapes, "inputs*"),
    "top_k": ("TopKV2", _top, "input! k=1 _sorted=True index_type@='int32'", None,
              lambda found: TopKV2(*found)),
    "in_top_k": ("InTopKV2", logits.in_top, "targets! predictions! k"),
    "bincount": ("Bincount", totals.counts, "arr! weights!=None minlength=None maxlength=None "
                 "dtype@='int32' _axis=None binary_output=False"),
    "confusion_matrix": ("ConfusionMatrix", _confusion, "labels! predictions! num_classes=None "
                         "weights!=None dtype@='int32'"),
    "l2_normalize": ("L2Normalize", normalizing.l2_normalize, "x! axis=None epsilon=1e-12",
                     COMPLEX),
    "zero_fraction": ("ZeroFraction", lambda x: dt.mean((x == 0).float()), "value!"),
    **{w: (kind, fn, "logits! axis=None", FLOATS) for w, kind, fn in (
        ("softmax", "Softmax", lambda x, d: dt.softmax(x, dim=-1 if d is None else d)),
        ("log_softmax", "LogSoftmax", lambda x, d: dt.log_softmax(x, dim=-1 if d is None else d)))},
}  # fmt: skip
matmul = op(
    "matmul", "MatMul", systems.matmul, "a~ b~ transpose_a=False transpose_b=False adjoint_a=False "
    "adjoint_b=False _a_is_sparse=False _b_is_sparse=False _output_type=None", NUMBERS)  # fmt: skip
matvec = op("matvec", "MatVec", systems.matvec, "a~ b~ transpose_a=False")
tensordot = op("tensordot", "TensorDot", systems.tensordot, "a~ b~ axes")
NAMES: dict[str, Any] = {
    **_UNARY, **_BINARY, **table(_ROWS), "divide_no_nan": divide_no_nan, "divide": divide,
    "truediv": divide,
}  # fmt: skip
NAMES |= {"mod": NAMES["floormod"], "accumulate_n": NAMES["add_n"]}
# What of it stands at the top, too.
TOP = """abs add acos acosh argmax argmin asin asinh atan atan2 atanh cos cosh cumsum divide equal
exp floor greater greater_equal less less_equal logical_and logical_not logical_or maximum minimum
multiply negative not_equal pow reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean
reduce_min reduce_prod reduce_sum round sigmoid sign sin sinh sqrt square subtract tan tanh truediv
add_n""".split()
EXTRA = {
    "truncatediv": NAMES.pop("truncatediv"), "truncatemod": NAMES.pop("truncatemod"), "cast": cast,
    "clip_by_value": op(
        "clip_by_value", "ClipByValue", lambda t, low, high: dt.maximum(dt.minimum(t, high), low),
        "t~ clip_value_min~ clip_value_max~"),
    "matmul": matmul, "einsum": einsum, "tensordot": tensordot,
    "complex": binary("complex", "Complex", dt.complex, FLOATS),
}  # fmt: skip
