"""Random tensors: samplers, dropout, and the in-place forms that initialisation uses.

Every draw is a primitive marked ``random`` that takes its generator as a parameter, so that a
captured program draws anew each time it runs. Draws are not differentiable in their parameters,
except by composition (``normal(mean, std)`` is ``mean + std * draw``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backends import fused_elementwise as fused
from ..backends.null import NullArray
from ..context import SLOW, thread
from ..core import dtypes
from ..core.device import usable
from ..core.gate import check_inplace, gate, touched
from ..core.random import Generator, default_generator
from ..core.tensor import Tensor, wrap
from ..errors import ConfigError, DTypeError, ShapeError
from . import elementwise as el
from .args import size as as_size
from .args import tensor as as_input
from .batching import front
from .declare import primitive
from .inplace import records, write

_FUSED_FROM = 4096  # elements from which a kernel beats numpy's passes
_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))


# --- the draws ---------------------------------------------------------------------------------
def _floats(draw: Any, shape: tuple, dtype: np.dtype) -> np.ndarray:
    """``draw(shape, type)`` in the nearest type that numpy draws."""
    if dtype in _NATIVE:
        return draw(shape, dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return (draw(shape, part) + 1j * draw(shape, part)).astype(dtype)
    return draw(shape, np.dtype(np.float32)).astype(dtype)


def _shape_rule(shape: tuple, dtype: np.dtype, **rest: Any) -> tuple:
    return shape, dtype


def _uniform(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    if dtype.kind == "V" or (dtype.itemsize == 2 and dtype.kind == "f"):
        steps = 11 if dtype.kind == "f" else 8  # rounding a float32 could give 1
        raw = generator.rng.integers(0, 1 << steps, shape, np.uint16)
        return (raw.astype(np.float32) * np.float32(2.0**-steps)).astype(dtype)
    return _floats(lambda s, k: generator.rng.random(s, k), shape, dtype)


def _normal(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    out = _floats(lambda s, k: generator.rng.standard_normal(s, k), shape, dtype)
    return out * dtype.type(math.sqrt(0.5)) if dtype.kind == "c" else out


def _exponential(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    return _floats(lambda s, k: generator.rng.standard_exponential(s, k), shape, dtype)


def _integers(
    shape: tuple, dtype: np.dtype, low: int, high: int, generator: Generator
) -> np.ndarray:
    if dtype.kind in "iu":
        return generator.rng.integers(low, high, shape, dtype)
    return generator.rng.integers(low, high, shape).astype(dtype)


def _permutation(shape: tuple, dtype: np.dtype, generator: Generator) -> np.ndarray:
    return generator.rng.permutation(shape[0]).astype(dtype, copy=False)


draw_uniform = primitive("rand", _uniform, "", random=True, shape=_shape_rule)
draw_normal = primitive("randn", _normal, "", random=True, shape=_shape_rule)
draw_exponential = primitive("rand_exponential", _exponential, "", random=True, shape=_shape_rule)
draw_integers = primitive("randint", _integers, "", random=True, shape=_shape_rule)
draw_permutation = primitive("randperm", _permutation, "", random=True, shape=_shape_rule)


def _bernoulli(a: Any, generator: Generator) -> Any:
    if a.size and not (a.min() >= 0 and a.max() <= 1):
        raise ConfigError("bernoulli: probabilities must lie in [0, 1]")
    kind = a.dtype if a.dtype in _NATIVE else np.dtype(np.float32)
    return (generator.rng.random(a.shape, kind) < a).astype(a.dtype)


draw_bernoulli = primitive(
    "bernoulli", _bernoulli, "a", random=True, shape=lambda a, generator: (a.shape, a.dtype)
)
draw_bernoulli.elementwise = True


def _poisson(a: Any, generator: Generator) -> Any:
    return generator.rng.poisson(a.astype(np.float64)).astype(a.dtype)


draw_poisson = primitive(
    "poisson", _poisson, "a", random=True, shape=lambda a, generator: (a.shape, a.dtype)
)
draw_poisson.elementwise = True


def _multinomial(a: Any, num_samples: int, replacement: bool, generator: Generator) -> Any:
    weights = a.astype(np.float64).reshape(-1, a.shape[-1])
    total = weights.sum(axis=1)
    if not (np.isfinite(total).all() and (weights >= 0).all() and (total > 0).all()):
        raise ConfigError(
            "multinomial: probabilities must be finite, not negative, and not all zero in a row"
        )
    if replacement or num_samples == 1:
        out = _with_replacement(weights, total, num_samples, generator.rng)
    else:
        out = _without_replacement(weights, num_samples, generator.rng)
    return out.reshape(*a.shape[:-1], num_samples)


def _with_replacement(
    weights: np.ndarray, total: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Where uniform draws fall in each row's distribution function."""
    rows, classes = weights.shape
    cdf = np.cumsum(weights, axis=1)
    keys = rng.random((rows, n)) * cdf[:, -1:]
    last = classes - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    if rows == 1:
        out = np.searchsorted(cdf[0], keys[0], "right")[None]
    else:
        out = (cdf[:, None, :] <= keys[:, :, None]).sum(axis=2)
    return np.minimum(out, last[:, None])


def _without_replacement(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """The first ``n`` arrivals of exponential clocks whose rates are the weights."""
    if n > int((weights > 0).sum(axis=1).min()):
        raise ConfigError(
            f"multinomial: {n} samples without replacement were asked for, more than a row has "
            "entries above zero; pass replacement=True, or fewer samples"
        )
    with np.errstate(divide="ignore"):
        arrivals = rng.standard_exponential(weights.shape) / weights
    return np.argsort(arrivals, axis=1)[:, :n]


def _multinomial_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return draw_multinomial(front(args[0], dims[0]), **params), 0


draw_multinomial = primitive(
    "multinomial", _multinomial, "a", random=True, batch=_multinomial_batch,
    shape=lambda a, num_samples, **rest: ((*a.shape[:-1], num_samples), np.dtype(np.int64)),
)  # fmt: skip


# --- dropout -----------------------------------------------------------------------------------
def _dropout_mask(a: Any, p: float, generator: Generator) -> Any:
    """True where an element is kept: 32 random bits each, compared with p."""
    n = a.size
    bits = generator.rng.bit_generator.random_raw((n + 1) // 2).view(np.uint32)[:n]
    threshold = round(p * 2.0**32)
    if threshold >> 32:
        return np.zeros(a.shape, bool)
    return (bits >= np.uint32(threshold)).reshape(a.shape)


dropout_mask = primitive(
    "dropout_mask", _dropout_mask, "a", random=True,
    shape=lambda a, p, generator: (a.shape, np.dtype(bool)),
)  # fmt: skip
dropout_mask.elementwise = True


def _masked_scale(a: Any, mask: Any, scale: float) -> Any:
    if a.dtype.kind != "c" and a.size >= _FUSED_FROM and a.shape == mask.shape:
        return fused.dropout(np.ascontiguousarray(a), mask, scale)
    return np.where(mask, a * a.dtype.type(scale), a.dtype.type(0))


masked_scale = primitive(
    "masked_scale", _masked_scale, "a mask",
    vjp={"a": lambda g, mask, scale: masked_scale(g, mask, scale=scale)},
    shape=lambda a, mask, scale: (a.shape, a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 4)), rng.random((3, 4)) > 0.5), {"scale": 2.0})],
)  # fmt: skip
masked_scale.elementwise = True


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Zero each element with probability ``p`` and scale the rest by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise ConfigError(f"dropout: p={p} given; a probability lies in [0, 1]")
    if not training or p == 0:
        return input
    mask = gate(dropout_mask, (input,), {"p": float(p), "generator": _source(generator)})
    return masked_scale(input, mask, scale=1.0 / (1.0 - p) if p < 1 else 0.0)


# --- new tensors -------------------------------------------------------------------------------
def _source(generator: Generator | None) -> Generator:
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: a Generator is needed, {type(generator).__name__} given")
    return generator


def _new(
    prim: Any, shape: tuple, dtype: Any, device: Any, requires_grad: bool,
    generator: Generator | None, **params: Any,
) -> Tensor:  # fmt: skip
    kind = (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).np
    if any(n < 0 for n in shape):
        raise ShapeError(f"{prim.name}: shape {list(shape)} given; sizes cannot be negative")
    if usable(device).type == "meta":
        out = wrap(NullArray(shape, kind))
    else:
        params = {"shape": shape, "dtype": kind, "generator": _source(generator), **params}
        out = gate(prim, (), params)
    return out.requires_grad_() if requires_grad else out


def _needs_float(where: str, dtype: Any) -> None:
    if dtype is None:
        return
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_floating_point or kind.is_complex):
        raise DTypeError(
            f"{where}: dtype={kind!r} given; needed a floating-point type (randint draws integers)"
        )


def rand(
    *size: Any, generator: Generator | None = None, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Uniform on [0, 1)."""
    _needs_float("rand", dtype)
    shape = as_size(size, "rand")
    return _new(draw_uniform, shape, dtype, device, requires_grad, generator)


def randn(
    *size: Any, generator: Generator | None = None, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal with mean 0 and variance 1."""
    _needs_float("randn", dtype)
    shape = as_size(size, "randn")
    return _new(draw_normal, shape, dtype, device, requires_grad, generator)


def randint(
    *args: Any, low: int | None = None, high: int | None = None, size: Any = None,
    generator: Generator | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``randint([low,] high, size)``: integers in [low, high); ``low`` is 0 unless given."""
    given = list(args)
    if given and not isinstance(given[-1], (int, np.integer)) and size is None:
        size = given.pop()
    if given and high is None:
        high = given.pop()
    if given and low is None:
        low = given.pop()
    low = 0 if low is None else int(low)
    if size is None or high is None or given:
        raise TypeError("randint: needed randint(high, size) or randint(low, high, size)")
    return _randint(as_size((size,), "randint"), low, int(high), dtype, device, requires_grad,
                    generator)  # fmt: skip


def _randint(
    shape: tuple, low: int, high: int, dtype: Any, device: Any, requires_grad: bool,
    generator: Generator | None,
) -> Tensor:  # fmt: skip
    if low >= high:
        raise ConfigError(f"randint: low={low}, high={high} given; low must be below high")
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    if kind.np.kind in "iu":
        info = np.iinfo(kind.np)
        if low < info.min or high - 1 > info.max:
            raise ConfigError(
                f"randint: values from {low} to {high - 1} do not fit into {kind!r}; needed a "
                "wider dtype"
            )
    return _new(draw_integers, shape, kind, device, requires_grad, generator, low=low, high=high)


def randperm(
    n: int, *, generator: Generator | None = None, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from 0 to ``n - 1`` in random order."""
    kind = dtypes.int64 if dtype is None else dtype
    return _new(draw_permutation, (int(n),), kind, device, requires_grad, generator)


def _like(input: Tensor, options: dict) -> dict:
    as_input(input, "a function of random numbers")
    return {
        "dtype": options.get("dtype") or input.dtype,
        "device": options.get("device") or input.device,
        "requires_grad": options.get("requires_grad", False),
        "generator": options.get("generator"),
    }


def rand_like(input: Tensor, **options: Any) -> Tensor:
    """``rand`` in the shape, type and place of ``input``."""
    return rand(*input.shape, **_like(input, options))


def randn_like(input: Tensor, **options: Any) -> Tensor:
    """``randn`` in the shape, type and place of ``input``."""
    return randn(*input.shape, **_like(input, options))


def randint_like(input: Tensor, *args: Any, **options: Any) -> Tensor:
    """``randint_like(input, [low,] high)``: integers in the shape and type of ``input``."""
    low, high = (0, args[0]) if len(args) == 1 else args
    o = _like(input, options)
    return _randint(tuple(input.shape), int(low), int(high), o["dtype"], o["device"],
                    o["requires_grad"], o["generator"])  # fmt: skip


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal with ``mean`` and ``std``: numbers with a ``size``, or tensors."""
    if not isinstance(std, Tensor) and std < 0:
        raise ConfigError(f"normal: std={std} given; it must not be negative")
    like = mean if isinstance(mean, Tensor) else std
    if size is not None:
        shape = as_size((size,), "normal")
    elif isinstance(like, Tensor):
        shape = np.broadcast_shapes(*(tuple(getattr(v, "shape", ())) for v in (mean, std)))
        dtype, device = dtype or like.dtype, device or like.device
    else:
        raise TypeError("normal: size is needed where mean and std are numbers")
    out = _new(draw_normal, shape, dtype, device, False, generator) * std + mean
    return out.requires_grad_() if requires_grad else out


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Any = None
) -> Tensor:
    """1 with the probability that ``input`` says (or ``p``), else 0."""
    probabilities = input if p is None else input.detach() * 0 + float(p)
    if not probabilities.dtype.is_floating_point:
        raise DTypeError(f"bernoulli: {input.dtype!r} given; probabilities are floating-point")
    return gate(draw_bernoulli, (probabilities.detach(),), {"generator": _source(generator)})


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson counts with the rates that ``input`` says."""
    return gate(draw_poisson, (input.detach(),), {"generator": _source(generator)})


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """``num_samples`` class numbers per row of weights (need not sum to 1): (C) or (N, C)."""
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise ShapeError(
            f"multinomial: input of shape {list(input.shape)} given; needed weights (C) or (N, C)"
        )
    if not input.dtype.is_floating_point:
        raise DTypeError(f"multinomial: {input.dtype!r} given; weights are floating-point")
    if num_samples < 1:
        raise ConfigError(f"multinomial: num_samples={num_samples} given; needed at least 1")
    if not replacement and num_samples > input.shape[-1]:
        raise ConfigError(
            f"multinomial: cannot take {num_samples} of {input.shape[-1]} classes without "
            "replacement; pass replacement=True"
        )
    params = {"num_samples": int(num_samples), "replacement": bool(replacement)}
    return gate(draw_multinomial, (input.detach(),), {**params, "generator": _source(generator)})


# --- in place ----------------------------------------------------------------------------------
def _fill(name: str, self: Tensor, prim: Any, generator: Any, then: Any = None, **params: Any):
    """Write fresh draws, changed by ``then``, into ``self``. Nothing happens on the meta device."""
    source = _source(generator)
    if self.is_meta:
        return self
    recording = records(self)
    if recording:
        check_inplace(self, name)
    shape, kind = self.meta()
    if kind.kind not in "fVc" and prim is not draw_integers:
        kind = np.dtype(np.float32)
    params = {"shape": tuple(shape), "dtype": kind, "generator": source, **params}
    if thread.mode == SLOW or recording:
        value = gate(prim, (), params)
        value = value if then is None else then(value)
        write(name, self, el.cast(value, dtype=self.meta()[1]), recording)
        return self
    value = prim.forward(**params)
    if then is not None:
        value = then(value)
    np.copyto(self.array, value, casting="unsafe")
    touched(self)
    return self


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal draws."""
    if std < 0:
        raise ConfigError(f"normal_: std={std} given; it must not be negative")
    plain = mean == 0 and std == 1
    return _fill("normal_", self, draw_normal, generator, None if plain else _affine(std, mean))


def _affine(scale: float, shift: float) -> Any:
    scale, shift = float(scale), float(shift)
    return lambda x: x * scale + shift if shift else x * scale


def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None,
    **kwargs: float,
) -> Tensor:  # fmt: skip
    """Fill with draws from [from, to)."""
    low = float(kwargs.pop("from", from_))
    if kwargs:
        raise TypeError(f"uniform_: unexpected arguments {sorted(kwargs)}")
    if low > to:
        raise ConfigError(f"uniform_: from={low}, to={to} given; from must not be above to")
    plain = low == 0 and to == 1
    change = None if plain else _affine(to - low, low)
    return _fill("uniform_", self, draw_uniform, generator, change)


def random_(
    self: Tensor, from_: int | None = None, to: int | None = None, *,
    generator: Generator | None = None, **kwargs: Any,
) -> Tensor:  # fmt: skip
    """``random_()``, ``random_(to)``, ``random_(from, to)``: integers below ``to``."""
    from_ = kwargs.pop("from", from_)
    if kwargs:
        raise TypeError(f"random_: unexpected arguments {sorted(kwargs)}")
    if to is None and from_ is not None:
        from_, to = 0, from_
    low = 0 if from_ is None else int(from_)
    high = _all_values(self.dtype) if to is None else int(to)
    if low >= high:
        raise ConfigError(f"random_: from={low}, to={high} given; from must be below to")
    return _fill("random_", self, draw_integers, generator, low=low, high=high)


def _all_values(kind: dtypes.dtype) -> int:
    """One more than the largest integer that ``random_()`` draws for this type."""
    if kind is dtypes.bool:
        return 2
    if kind.np.kind in "iu":
        return int(np.iinfo(kind.np).max) + (0 if kind.itemsize == 8 else 1)
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}.get(kind.name, 24)
    return (1 << digits) + 1


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 (probability ``p``, a number or a tensor) and 0."""
    if isinstance(p, Tensor):
        p = p.array
    elif not 0 <= p <= 1:
        raise ConfigError(f"bernoulli_: p={p} given; a probability lies in [0, 1]")
    return _fill("bernoulli_", self, draw_uniform, generator, lambda x: x < p)


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential draws of rate ``lambd``."""
    if lambd <= 0:
        raise ConfigError(f"exponential_: lambd={lambd} given; it must be positive")
    change = None if lambd == 1 else _affine(1.0 / lambd, 0.0)
    return _fill("exponential_", self, draw_exponential, generator, change)


__all__ = [
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
]
