"""Activations. Formulas are written so that values and gradients stay finite for large inputs."""

from __future__ import annotations

from ... import ops
from ...core import Tensor, no_grad
from ...core.annotations import DTypeLike
from ...core.types.casting import computes_in
from ...core.types.dtypes import as_dtype
from ...errors import ConfigError, DTypeError, ShapeError
from ...ops.functions.args import kinds
from ...ops.functions.outs import fills
from ...ops.primitives.elementwise import stepwise
from ...ops.primitives.softmax import softplus_
from ...ops.promotion import same_type
from ...trace import warn
from .common import activate, into

_SELU_ALPHA = 1.6732632423543772848170429916717
_SAME = 20  # from there on, softplus and its slope are x and 1 in float32
_SELU_SCALE = 1.0507009873554804934193349852946


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return into(input, ops.relu, True) if inplace else ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """``relu`` written over its input."""
    return relu(input, True)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold (or is nan), else ``value``"""
    kind = input.dtype
    value, threshold = (
        (int(v) if kind.np.kind in "iu" else v) for v in (value, threshold)
    )  # in the type of the input
    return activate("threshold", input, lambda x: stepwise(ops.where(x <= threshold, value, x), x),
                    inplace, "iufV")  # fmt: skip


_THRESHOLD = threshold  # arguments have its name


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else ``negative_slope`` x"""

    def bent(x: Tensor) -> Tensor:
        return stepwise(ops.where(x > 0, x, x * negative_slope), x)

    return activate("leaky_relu", input, bent, inplace)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """``leaky_relu`` whose slopes are drawn from [lower, upper), one for each element; when not
    training, with their mean (Xu et al., 2015)"""
    if lower > upper:
        raise ConfigError(
            "rrelu: Lower bound should be less than or equal to the upper bound, but "
            f"lower={lower} and upper={upper} were given"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    kinds("rrelu", "fV", input)
    with no_grad():
        slopes = ops.rand_like(input.detach()) * (upper - lower) + lower
        slopes = ops.where(input > 0, ops.ones_like(slopes), slopes)
    return into(input, lambda x: x * slopes, inplace)


@computes_in("lower")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``leaky_relu`` with a learnt slope: one number, or one per channel (dimension 1)."""
    kinds("prelu", "fV", input)
    same_type("prelu", input, weight)
    n = weight.numel()
    if n != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if n != channels:
            raise ShapeError(
                f"prelu: weight of {n} slopes for an input of shape {list(input.shape)} with "
                f"{channels} channels; needed 1 slope or {channels}"
            )
        weight = weight.reshape((1, n) + (1,) * (input.ndim - 2))
    elif not input.ndim:
        weight = weight.reshape(())
    return stepwise(ops.where(input > 0, input, input * weight), input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x clamped to [0, 6]"""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clamped to [min_val, max_val]; no gradient outside and at the ends"""
    if min_val > max_val:
        raise ConfigError(f"hardtanh: min_val={min_val} is above max_val={max_val}")

    if input.meta()[1].kind == "u" and min_val < 0:
        raise DTypeError(
            f"hardtanh: min_val={min_val} given for {input.dtype!r}, which has no negative numbers"
        )
    low, high = (int(v) if input.meta()[1].kind in "iu" else v for v in (min_val, max_val))

    def cut(x: Tensor) -> Tensor:
        inner = ops.where(x <= low, low, x)
        return stepwise(ops.where(inner >= high, high, inner), x)

    return activate("hardtanh", input, cut, inplace, "iufV")


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """clamp(x + 3, 0, 6) / 6"""

    def bent(x: Tensor) -> Tensor:
        inside = ops.logical_and(x > -3, x < 3)
        slope = (ops.where(inside, x, 0.0) + 3) / 6
        return stepwise(ops.where(inside, slope, hardtanh(x.detach() + 3, 0.0, 6.0) / 6), x)

    return activate("hardsigmoid", input, bent, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x hardsigmoid(x)"""

    def bent(x: Tensor) -> Tensor:
        y = x + 3
        share = ops.where(y < 6, ops.where(y <= 0, 0.0, y), 6.0)  # (all, where it is nan)
        return x * (stepwise(share, x) / 6)

    return activate("hardswish", input, bent, inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0; ``lambd`` is a number of the type of x"""
    kind = input.meta()[1]
    lambd = float(kind.type(lambd)) if kind.kind in "fV" else lambd

    def shrunk(x: Tensor) -> Tensor:
        return stepwise(ops.where(x.abs() <= lambd, 0.0, x), x)

    return activate("hardshrink", input, shrunk)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd"""
    if lambd < 0:
        raise ConfigError(f"softshrink: lambd={lambd} given; it must not be negative")
    return activate("softshrink", input, lambda x: stepwise(x - ops.clamp(x, -lambd, lambd), x))


def _negative_expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 where x <= 0, and 0 elsewhere: no overflow, and no nan in gradients."""
    return ops.expm1(ops.where(x <= 0, x, 0.0))


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)"""
    return activate(
        "elu", input, lambda x: ops.where(x <= 0, _negative_expm1(x) * alpha, x), inplace
    )


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU with the self-normalising constants (Klambauer et al., 2017)"""
    return activate("selu", input, lambda x: elu(x, _SELU_ALPHA) * _SELU_SCALE, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha (exp(x / alpha) - 1))"""
    if alpha == 0:
        raise ConfigError("celu: alpha must not be 0")
    return activate(
        "celu",
        input,
        lambda x: ops.where(x <= 0, _negative_expm1(ops.where(x <= 0, x, 0.0) / alpha) * alpha, x),
        inplace,
    )


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; ``approximate="tanh"`` for the tanh form"""
    if approximate not in ("none", "tanh"):
        raise ConfigError(f"gelu: approximate={approximate!r} given; needed 'none' or 'tanh'")
    kinds("gelu", "fV", input)
    return ops.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x), also called swish"""
    if input.meta()[1].kind == "c":
        return into(input, lambda x: x * ops.sigmoid(x), inplace)
    kinds("silu", "fV", input)
    return into(input, ops.silu, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))"""
    return activate("mish", input, lambda x: x * ops.tanh(softplus_(x)), inplace)


@fills
@computes_in("full")
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold"""

    def smooth(x: Tensor) -> Tensor:
        scaled = x * beta if beta != 1 else x
        out = softplus_(scaled)
        out = out / beta if beta != 1 else out
        if threshold >= _SAME and x.meta()[1].char == "f":
            return out
        return ops.where(scaled > threshold, x, out)

    return activate("softplus", input, smooth)


@fills
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return activate("logsigmoid", input, lambda x: -softplus_(-x))


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))"""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent"""
    return ops.tanh(input)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    return activate("softsign", input, lambda x: x / (x.abs() + 1), False, "iufVc")


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)"""
    return activate("tanhshrink", input, lambda x: x - ops.tanh(x), False, "iufVc")


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half times the sigmoid of the second half, along ``dim``"""
    if input.ndim == 0 or input.shape[dim] % 2:
        raise ShapeError(
            f"glu: input of shape {list(input.shape)} given; dimension {dim} must have an even size"
        )

    def gated(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim)
        return a * ops.sigmoid(b)

    return activate("glu", input, gated)


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """exp(x) / sum exp(x) along ``dim``"""
    x = input if dtype is None else input.to(as_dtype(dtype))
    return ops.softmax(x, _softmax_dim("softmax", x, dim))


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """log(softmax(x)) along ``dim``"""
    x = input if dtype is None else input.to(as_dtype(dtype))
    return ops.log_softmax(x, _softmax_dim("log_softmax", x, dim))


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Tensor:
    """softmax of -x"""
    return softmax(-input, dim, dtype=dtype)


def _softmax_dim(where: str, x: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    chosen = 0 if x.ndim in (0, 1, 3) else 1
    warn(
        f"Implicit dimension choice for {where} has been deprecated; dim={chosen} is taken. Pass "
        "dim=X.",
    )
    return chosen


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample from the Gumbel-softmax distribution (Jang et al., 2017); ``hard``: one-hot forward,
    soft backward."""
    noise = -ops.log(-ops.log(ops.rand_like(logits).clamp(min=1e-20)))
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = soft.detach().argmax(dim, keepdim=True)
    one_hot = ops.zeros_like(soft.detach()).scatter(dim, best, 1.0)
    return one_hot - soft.detach() + soft


# --- written over their input ------------------------------------------------------------------
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """``threshold`` written over its input."""
    return _THRESHOLD(input, threshold, value, True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``leaky_relu`` written over its input."""
    return leaky_relu(input, negative_slope, True)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """``rrelu`` written over its input."""
    return rrelu(input, lower, upper, training, True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``hardtanh`` written over its input."""
    return hardtanh(input, min_val, max_val, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``elu`` written over its input."""
    return elu(input, alpha, True)


def selu_(input: Tensor) -> Tensor:
    """``selu`` written over its input."""
    return selu(input, True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``celu`` written over its input."""
    return celu(input, alpha, True)
