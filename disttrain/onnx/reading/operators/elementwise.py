"""Operators on elements: arithmetic, functions of one number, tests, bits, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import DTypeError, ShapeError
from ....nn import functional as F
from ....ops import api
from ..elements import NARROW, NUMBERS, OURS, held_in
from ..table import operator, simple

simple(
    Abs=lambda x: abs(x), Neg=lambda x: -x, Exp=lambda x: api.exp(x), Log=lambda x: api.log(x),
    Sqrt=lambda x: api.sqrt(x), Reciprocal=lambda x: 1.0 / x, Floor=lambda x: api.floor(x),
    Ceil=lambda x: api.ceil(x), Sin=lambda x: api.sin(x), Cos=lambda x: api.cos(x),
    Tan=lambda x: api.tan(x), Asin=lambda x: api.asin(x), Acos=lambda x: api.acos(x),
    Atan=lambda x: api.atan(x), Sinh=lambda x: api.sinh(x), Cosh=lambda x: api.cosh(x),
    Tanh=lambda x: api.tanh(x), Asinh=lambda x: api.asinh(x), Acosh=lambda x: api.acosh(x),
    Atanh=lambda x: api.atanh(x), Erf=lambda x: api.erf(x), Sign=lambda x: api.sign(x),
    Round=lambda x: api.round(x), Sigmoid=lambda x: api.sigmoid(x), Relu=lambda x: F.relu(x),
    Softplus=lambda x: F.softplus(x, threshold=80.0), Softsign=lambda x: F.softsign(x),
    HardSwish=lambda x: F.hardswish(x), Mish=lambda x: F.mish(x),
    IsNaN=lambda x: api.isnan(x), Not=lambda x: api.logical_not(x),
    BitwiseNot=lambda x: api.bitwise_not(x),
)  # fmt: skip
simple(
    Add=lambda a, b: a + b, Sub=lambda a, b: a - b, Mul=lambda a, b: a * b,
    Equal=lambda a, b: equal(a, b), Greater=lambda a, b: a > b, Less=lambda a, b: a < b,
    GreaterOrEqual=lambda a, b: a >= b, LessOrEqual=lambda a, b: a <= b,
    And=lambda a, b: api.logical_and(a, b), Or=lambda a, b: api.logical_or(a, b),
    Xor=lambda a, b: api.logical_xor(a, b), BitwiseAnd=lambda a, b: a & b,
    BitwiseOr=lambda a, b: a | b, BitwiseXor=lambda a, b: a ^ b,
)  # fmt: skip


def equal(a: Any, b: Any) -> Any:
    """Whether elements are equal; of texts, too."""
    if isinstance(a, np.ndarray):
        return api.tensor(np.asarray(a == b, bool))
    return a == b


@operator("Identity")
def _identity(x: Any) -> Any:
    return x


@operator("Div")
def _div(a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.dtype.is_floating_point else api.div(a, b, rounding_mode="trunc")


@operator("Mod")
def _mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return api.fmod(a, b) if fmod else api.remainder(a, b)


@operator("Pow")
def _pow(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == b.dtype:
        return a**b
    kind = dtypes.promote_types(a.dtype, b.dtype)
    return (a.to(kind) ** b.to(kind)).to(a.dtype)


def _at_axis(how: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Before version 7: the second one lies at an axis of the first."""

    def run(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if broadcast and axis is not None:
            after = a.ndim - (axis % a.ndim) - b.ndim
            b = b.reshape(*b.shape, *[1] * after)
        return how(a, b)

    return run


for _name, _how in (
    ("Add", lambda a, b: a + b), ("Sub", lambda a, b: a - b), ("Mul", lambda a, b: a * b),
    ("Div", _div), ("Pow", _pow), ("Equal", equal), ("Less", lambda a, b: a < b),
    ("Greater", lambda a, b: a > b), ("And", lambda a, b: api.logical_and(a, b)),
    ("Or", lambda a, b: api.logical_or(a, b)), ("Xor", lambda a, b: api.logical_xor(a, b)),
):  # fmt: skip
    operator(_name, until=6)(_at_axis(_how))


@operator("BitShift")
def _bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    return a << b if direction == "LEFT" else a >> b


def _over_all(how: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *given: functools.reduce(how, given)


simple(
    Max=_over_all(lambda a, b: api.maximum(a, b)), Min=_over_all(lambda a, b: api.minimum(a, b)),
    Sum=_over_all(lambda a, b: a + b),
    Mean=lambda *given: functools.reduce(lambda a, b: a + b, given) / len(given),
)  # fmt: skip


@operator("Where")
def _where(condition: Tensor, a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        return np.where(condition.numpy(), a, b)
    return api.where(condition, a, b)


@operator("Clip")
def _clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    if min is not None:
        x = api.maximum(x, _alike(min, x))
    return x if max is None else api.minimum(x, _alike(max, x))


def _alike(bound: Any, x: Tensor) -> Tensor:
    return (
        bound if isinstance(bound, Tensor) else api.full((), bound, dtype=x.dtype, device=x.device)
    )


@operator("IsInf")
def _is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = api.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


@operator("LeakyRelu")
def _leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@operator("Elu")
def _elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@operator("Celu")
def _celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@operator("Selu")
def _selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * api.where(x > 0, x, alpha * api.expm1(api.minimum(x, api.zeros_like(x))))


@operator("PRelu")
def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return api.where(x < 0, x * slope, x)


@operator("PRelu", until=6)
def _prelu_by_channel(x: Tensor, slope: Tensor) -> Tensor:
    return _prelu(x, slope.reshape(-1, *[1] * (x.ndim - 2)) if slope.ndim == 1 else slope)


@operator("ThresholdedRelu")
def _thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return api.where(x > alpha, x, api.zeros_like(x))


@operator("HardSigmoid")
def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return api.clamp(x * alpha + beta, 0.0, 1.0)


@operator("Shrink")
def _shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = api.zeros_like(x)
    return api.where(x < -lambd, x + bias, api.where(x > lambd, x - bias, zero)).to(x.dtype)


@operator("Gelu")
def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def _swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1.0 else x * api.sigmoid(x * alpha)


# --- casts ---------------------------------------------------------------------------------------
_SATURATING = {dtypes.float8_e4m3fn: 448.0, dtypes.float8_e4m3fnuz: 240.0,
               dtypes.float8_e5m2: 57344.0, dtypes.float8_e5m2fnuz: 57344.0}  # fmt: skip


@operator("Cast")
def _cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up", node: Any) -> Any:
    """As ``cast``; to what the model's type is now, after ``double`` and the like."""
    if isinstance(x, Tensor) and node.types and to in OURS:
        to = NUMBERS[node.type_of(OURS[to])]
    return cast(x, to=to, saturate=saturate, round_mode=round_mode)


def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """Elements in the type with ONNX's number ``to``."""
    if isinstance(x, np.ndarray):
        return _from_texts(x, to)
    if to == 8:
        return _as_texts(x)
    if to in NARROW:
        return _narrow(x, to)
    kind = held_in(to)
    if kind in _SATURATING and x.dtype.is_floating_point:
        return _to_float8(x, kind, saturate)
    if kind == dtypes.float8_e8m0fnu:
        return _to_scale(x, saturate, round_mode)
    return x.to(kind)


def _to_float8(x: Tensor, kind: dtypes.dtype, saturate: int) -> Tensor:
    most = _SATURATING[kind]
    wide = x.to(dtypes.float32)
    if not saturate:  # what is too large is no number
        return api.tensor(wide.detach().cpu().numpy().astype(kind.np), device=x.device)
    inside = api.clamp(wide, -most, most)
    return api.where(api.isnan(wide), wide, inside).to(kind)


def _to_scale(x: Tensor, saturate: int, round_mode: str) -> Tensor:
    """In the type of powers of 2."""
    wide = x.to(dtypes.float32)
    power = api.log2(abs(wide))
    near = {"up": api.ceil, "down": api.floor, "nearest": lambda p: api.floor(p + 0.5)}
    power = near[round_mode](power)
    if saturate:
        power = api.clamp(power, -127.0, 127.0)
    return api.where(api.isnan(wide), wide, api.exp2(power)).to(dtypes.float8_e8m0fnu)


def _narrow(x: Tensor, to: int) -> Tensor:
    """In a type of fewer bits, whose values the wider one holds."""
    held, exact = NARROW[to]
    array = x.detach().cpu().numpy()
    if array.dtype.kind in "iub" and to != 23:
        array = array.astype(np.int64)
    else:
        array = array.astype(np.float32)
    return api.tensor(array.astype(exact).astype(held.np))


def _as_texts(x: Tensor) -> np.ndarray:
    out = np.empty(tuple(x.shape), object)
    for place, value in np.ndenumerate(x.numpy()):
        out[place] = _text(value)
    return out


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "INF" if number > 0 else "-INF"
    return np.format_float_positional(value, trim="-") if value.dtype.kind == "f" else str(value)


def _from_texts(x: np.ndarray, to: int) -> Any:
    if to == 8:
        return x
    kind = held_in(to)
    numbers = [float(t) if kind.is_floating_point else int(t) for t in x.ravel()]
    return api.tensor(np.array(numbers).reshape(x.shape)).to(kind)


@operator("CastLike")
def _cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up", node: Any) -> Any:
    to = 8 if isinstance(like, np.ndarray) else node.narrow_type(1) or NUMBERS[like.dtype]
    return cast(x, to=to, saturate=saturate, round_mode=round_mode)


@operator("BitCast")
def _bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.view(held_in(to))


@operator("Dropout")
def _dropout(
    x: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int = 0, node: Any
) -> Any:
    """Dropped only where the model asks for training."""
    mask = None
    if isinstance(training_mode, Tensor) and bool(training_mode):
        share = 0.5 if ratio is None else float(ratio)
        mask = api.rand_like(x, dtype=dtypes.float32) >= share
        x = api.where(mask, x / (1.0 - share) if share < 1 else x * 0, api.zeros_like(x))
    if node.num_outputs == 1:
        return x
    return x, api.ones_like(x, dtype=dtypes.bool) if mask is None else mask


def check_float(x: Tensor, what: str) -> None:
    """An operator of floating numbers alone."""
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{what} is {x.dtype}; needed is a floating type")


def check_sizes(count: Any, node: Any) -> None:
    """Whether a tensor that is made of sizes alone is one that the limits allow."""
    if type(count) is int and count > node.limits.elements:
        raise ShapeError(
            f"{count} elements would be made; at most {node.limits.elements} are "
            "(load(..., limits=Limits(elements=...)))"
        )


_MOST = 1 << 31


def check_count(count: Any, most: int = _MOST) -> None:
    """The same where attributes say the sizes, which are small in all that is meant well."""
    if type(count) is int and count > most:
        raise ShapeError(f"{count} elements would be made; at most {most} are")
