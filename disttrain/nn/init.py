"""Initial values, written in place and outside the graph; nothing happens on the meta device.

Sources: Glorot, Bengio, 2010 (xavier); He et al., 2015 (kaiming); Saxe et al., 2013 (orthogonal).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from .. import ops
from ..core import Tensor, no_grad, wrap
from ..core.classes import values_of
from ..core.random import Generator
from ..core.tensor import beside
from ..errors import ConfigError, ShapeError
from ..trace import warn
from .parameter import is_lazy

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much to scale weights in front of ``nonlinearity``; ``param``: a leaky slope."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ConfigError(f"calculate_gain: negative_slope {slope!r} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if not isinstance(nonlinearity, str) or nonlinearity not in _GAINS:
        raise ConfigError(
            f"calculate_gain: Unsupported nonlinearity {nonlinearity!r}; needed leaky_relu or one "
            f"of {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def _has_values(tensor: Tensor) -> bool:
    return not (is_lazy(tensor) or tensor.is_meta)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform on [a, b)"""
    if _has_values(tensor):
        with no_grad():
            tensor.uniform_(a, b, generator=generator)
    return tensor


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal with ``mean`` and ``std``"""
    if _has_values(tensor):
        with no_grad():
            tensor.normal_(mean, std, generator=generator)
    return tensor


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal, drawn again wherever a value falls outside [a, b]"""
    if not a < b:
        raise ConfigError(f"trunc_normal_: a={a}, b={b} given; a must be below b")
    if not _has_values(tensor):
        return tensor
    if _mass(a, b, mean, std) < 1e-4:
        raise ConfigError(
            f"trunc_normal_: [{a}, {b}] holds next to nothing of a normal distribution with mean "
            f"{mean} and std {std}; widen it"
        )
    with no_grad():
        tensor.normal_(mean, std, generator=generator)
        out = (tensor < a) | (tensor > b)
        while bool(out.any()):
            again = ops.empty_like(tensor).normal_(mean, std, generator=generator)
            tensor.copy_(ops.where(out, again, tensor))
            out = (tensor < a) | (tensor > b)
    return tensor


def _mass(a: float, b: float, mean: float, std: float) -> float:
    low, high = ((x - mean) / (std * math.sqrt(2.0)) for x in (a, b))
    return (math.erf(high) - math.erf(low)) / 2


def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere"""
    if _has_values(tensor):
        with no_grad():
            tensor.fill_(val)
    return tensor


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere"""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere"""
    return constant_(tensor, 0.0)


def _copy(tensor: Tensor, values: np.ndarray) -> Tensor:
    if _has_values(tensor):
        with no_grad():
            tensor.copy_(wrap(np.ascontiguousarray(values)).to(tensor.dtype))
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The identity in a 2-d tensor"""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: shape {list(tensor.shape)} given; needed 2 dimensions")
    return _copy(tensor, np.eye(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights (3 to 5 dimensions) that pass channels through"""
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(
            f"dirac_: shape {list(shape)} given; needed 3 to 5 dimensions, the first divisible by "
            f"groups={groups}"
        )
    values = np.zeros(shape)
    per_group = shape[0] // groups
    centre = tuple(k // 2 for k in shape[2:])
    for g in range(groups):
        for d in range(min(per_group, shape[1])):
            values[(g * per_group + d, d, *centre)] = 1
    return _copy(tensor, values)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input has"""
    shape = tensor.shape
    if len(shape) < 2:
        raise ShapeError(
            f"init: Fan in and fan out can not be computed for shape {list(shape)}; needed at "
            "least 2 dimensions"
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    fans = dict(zip(("fan_in", "fan_out"), _calculate_fan_in_and_fan_out(tensor), strict=True))
    if mode.lower() not in fans:
        raise ConfigError(f"kaiming: mode={mode!r} given; needed fan_in or fan_out")
    return fans[mode.lower()]


def _empty(where: str, tensor: Tensor) -> bool:
    """Nothing to initialise: no elements, or no shape yet."""
    if is_lazy(tensor):
        return True
    if 0 in tensor.shape:
        warn(f"{where}: a tensor without elements is initialised")
        return True
    return False


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform with variance 2 gain² / (fan_in + fan_out)"""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with variance 2 gain² / (fan_in + fan_out)"""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Uniform with variance gain² / fan; ``a``: the slope of a leaky ReLU"""
    if _empty("kaiming_uniform_", tensor):
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal with variance gain² / fan"""
    if _empty("kaiming_normal_", tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """A (semi-)orthogonal matrix; dimensions after the first are taken as one"""
    if tensor.ndim < 2:
        raise ShapeError(
            f"orthogonal_: shape {list(tensor.shape)} given; needed at least 2 dimensions"
        )
    if not _has_values(tensor) or tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    cols = tensor.numel() // rows
    where = tensor.device if generator is None else generator.device
    drawn = ops.randn(max(rows, cols), min(rows, cols), generator=generator, device=where)
    q, r = np.linalg.qr(values_of(drawn).astype(np.float64))
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the distribution uniform (Haar)
    q = q.T if rows < cols else q
    return _copy(tensor, (gain * q).reshape(tensor.shape))


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Normal, with a share ``sparsity`` of each column of a 2-d tensor set to zero"""
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: shape {list(tensor.shape)} given; needed 2 dimensions")
    normal_(tensor, 0.0, std, generator)
    if not _has_values(tensor):
        return tensor
    rows, cols = tensor.shape
    where = tensor.device if generator is None else generator.device
    drawn = ops.rand(rows, cols, generator=generator, device=where)
    ranks = values_of(drawn).argsort(axis=0).argsort(axis=0)
    keep = beside(tensor, ranks >= math.ceil(sparsity * rows)).to(tensor.dtype)
    with no_grad():
        tensor.mul_(keep)
    return tensor


def _older_name(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``fn`` under its name without the underscore, which says that the other is the one to use."""
    name = fn.__name__[:-1]

    @functools.wraps(fn)
    def run(*args: object, **kwargs: object) -> Tensor:
        warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{fn.__name__}`.",
            FutureWarning,
        )
        return fn(*args, **kwargs)

    run.__name__ = run.__qualname__ = name
    return run


uniform = _older_name(uniform_)
normal = _older_name(normal_)
constant = _older_name(constant_)
eye = _older_name(eye_)
dirac = _older_name(dirac_)
xavier_uniform = _older_name(xavier_uniform_)
xavier_normal = _older_name(xavier_normal_)
kaiming_uniform = _older_name(kaiming_uniform_)
kaiming_normal = _older_name(kaiming_normal_)
orthogonal = _older_name(orthogonal_)
sparse = _older_name(sparse_)
