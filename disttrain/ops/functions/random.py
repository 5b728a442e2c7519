"""Random tensors: samplers and dropout. What is drawn into tensors is in ``sampling``.

The primitives are in ``draws``. Draws are not differentiable in their parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.null import NullArray
from ...context import SLOW, thread
from ...core.annotations import DeviceLike, Dims, DTypeLike
from ...core.gate import Primitive, Tracer, gate
from ...core.random import Generator, default_generator, generator_of
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import CPU, META, usable
from ...core.types.memory_format import inverse
from ...errors import ConfigError, DeviceError, DTypeError, ShapeError
from ...symbolic import as_int
from ..primitives import elementwise as el
from ..primitives.batching import made_beside, plain_on_device
from ..primitives.random import (
    draw_bernoulli,
    draw_integers,
    draw_multinomial,
    draw_normal,
    draw_permutation,
    draw_poisson,
    draw_uniform,
    dropout_mask,
    masked_scale,
    native_dropout,
)
from ..primitives.views import permute
from ..promotion import refuse
from .args import broadcast, kinds
from .args import size as as_size
from .args import tensor as as_input
from .creation.moving import pin_memory as to_pinned
from .views.memory_formats import kept_order


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Zero each element with probability ``p`` and scale the rest by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise ConfigError(f"dropout: p={p} given; a probability lies in [0, 1]")
    if not training or p == 0:
        return input
    kinds("dropout", "fV", input)
    how = {"p": float(p), "generator": source_of(generator, input.device)}
    if plain_on_device(input):  # one launch makes both the mask and the result
        return gate(native_dropout, (input,), how)[0]
    mask = gate(dropout_mask, (input,), how)
    return masked_scale(input, mask, scale=1.0 / (1.0 - p) if p < 1 else 0.0)


# --- new tensors -------------------------------------------------------------------------------
def source_of(generator: Generator | None, where: Any) -> Generator:
    """What draws numbers on the device ``where``."""
    if generator is None:
        return default_generator if where is CPU else generator_of(where)
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: a Generator is needed, {type(generator).__name__} given")
    if generator.device != where and where.type != "meta":
        raise DeviceError(
            f"Expected a '{where}' device type for generator but found '{generator.device}': a "
            f"generator draws on its own device; make one by Generator(device='{where}')"
        )
    return generator


def _new(
    prim: Primitive, shape: tuple, dtype: DTypeLike | None, device: DeviceLike | None,
    requires_grad: bool, generator: Generator | None, **params: object,
) -> Tensor:  # fmt: skip
    kind = (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).np
    if any(n < 0 for n in shape):
        raise ShapeError(f"{prim.name}: shape {list(shape)} given; sizes cannot be negative")
    where = usable(device)
    if where is META:
        out = wrap(NullArray(shape, kind))
    else:
        source = source_of(generator, where)
        out = gate(prim, (), {"shape": shape, "dtype": kind, "generator": source, **params})
    return out.requires_grad_() if requires_grad else out


def _needs_float(where: str, dtype: DTypeLike | None) -> None:
    if dtype is None:
        return
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_floating_point or kind.is_complex):
        raise DTypeError(
            f"{where}: dtype={kind!r} given; needed a floating-point type (randint draws integers)"
        )


def rand(
    *sizes: Dims, size: Dims | None = None, generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: str | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Uniform on [0, 1)."""
    _needs_float("rand", dtype)
    shape = as_size(sizes, "rand", size)
    out = _new(draw_uniform, shape, dtype, device, requires_grad, generator)
    return to_pinned(out) if pin_memory else out


def randn(
    *sizes: Dims, size: Dims | None = None, generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None, layout: str | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal with mean 0 and variance 1."""
    _needs_float("randn", dtype)
    shape = as_size(sizes, "randn", size)
    out = _new(draw_normal, shape, dtype, device, requires_grad, generator)
    return to_pinned(out) if pin_memory else out


def randint(
    *args: Any, low: int | None = None, high: int | None = None, size: Dims | None = None,
    generator: Generator | None = None, dtype: DTypeLike | None = None, layout: str | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``randint([low,] high, size)``: integers in [low, high); ``low`` is 0 unless given."""
    given = list(args)
    if given and not isinstance(given[-1], (int, np.integer)) and size is None:
        size = given.pop()
    if given and high is None:
        high = given.pop()
    if given and low is None:
        low = given.pop()
    low = 0 if low is None else as_int(low)
    if size is None or high is None or given:
        raise TypeError("randint: needed randint(high, size) or randint(low, high, size)")
    return _randint(as_size((size,), "randint"), low, as_int(high), dtype, device, requires_grad,
                    generator)  # fmt: skip


def _randint(
    shape: tuple, low: int, high: int, dtype: DTypeLike | None, device: DeviceLike | None,
    requires_grad: bool, generator: Generator | None,
) -> Tensor:  # fmt: skip
    if dtype is not None and dtypes.as_dtype(dtype).is_complex:
        raise refuse("randint", dtypes.as_dtype(dtype).np)
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


# Up to which power of two floating types have every integer.
DIGITS = {
    "float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4, "float8_e5m2": 3, "float8_e5m2fnuz": 3, "float8_e8m0fnu": 1,
}  # fmt: skip


def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: str | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from 0 to ``n - 1`` in random order."""
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    if kind.np.kind not in "iufV":
        raise refuse("randperm", kind.np)
    digits = DIGITS.get(kind.name)
    most = np.iinfo(kind.np).max if digits is None else 1 << digits
    if as_int(n) - 1 > most:
        raise ConfigError(f"randperm: n={n} is too large for {kind!r}, which counts to {most}")
    out = _new(draw_permutation, (as_int(n),), kind, device, requires_grad, generator)
    return to_pinned(out) if pin_memory else out


def placed(t: Tensor) -> bool:
    """Whether tensors made like ``t`` lie as it does, and so do their random numbers."""
    array = t.__dict__.get("array")
    return isinstance(array, ArrayKind) and array.places_others


def _like(input: Tensor, options: dict) -> dict:
    as_input(input, "a function of random numbers")
    return {
        "dtype": options.get("dtype") or input.dtype,
        "device": options.get("device") or input.device,
        "requires_grad": options.get("requires_grad", False),
        "generator": options.get("generator"),
    }


def _drawn_like(input: Tensor, prim: Primitive, options: dict, **more: object) -> Tensor:
    o = _like(input, options)
    params = {"shape": tuple(input.shape), "dtype": dtypes.as_dtype(o["dtype"]).np,
              "generator": source_of(o["generator"], input.device), **more}  # fmt: skip
    return wrap(input.array.drawn(prim, params)).requires_grad_(o["requires_grad"])


def _in_order(input: Tensor, options: dict, make: Callable[..., Tensor]) -> Tensor:
    """What ``make(shape)`` draws, laid out as ``input`` is or as ``memory_format`` says."""
    given = options.get("memory_format")
    order = None if isinstance(input, Tracer) else kept_order("like", input, given)
    shape = tuple(input.shape)
    if order is None or order == tuple(range(len(order))):
        return make(shape)
    drawn = make(tuple(shape[d] for d in order))
    wanted = drawn.requires_grad
    out = permute(drawn.detach(), dims=inverse(order)).detach()
    return out.requires_grad_(wanted)


def rand_like(input: Tensor, **options: object) -> Tensor:
    """``rand`` in the shape, type and place of ``input``."""
    if placed(input):
        return _drawn_like(input, draw_uniform, options)
    how = _like(input, options)
    return _in_order(input, options, lambda shape: rand(*shape, **how))


def randn_like(input: Tensor, **options: object) -> Tensor:
    """``randn`` in the shape, type and place of ``input``."""
    if placed(input):
        return _drawn_like(input, draw_normal, options)
    how = _like(input, options)
    return _in_order(input, options, lambda shape: randn(*shape, **how))


def randint_like(input: Tensor, *args: Any, **options: object) -> Tensor:
    """``randint_like(input, [low,] high)``: integers in the shape and type of ``input``."""
    low, high = (0, args[0]) if len(args) == 1 else args
    o = _like(input, options)
    if placed(input):
        return _drawn_like(input, draw_integers, options, low=int(low), high=int(high))
    how = o["dtype"], o["device"], o["requires_grad"], o["generator"]
    return _in_order(input, options, lambda shape: _randint(shape, int(low), int(high), *how))


def check_draw(name: str, *by: object, target: Tensor | None = None) -> None:
    """Ask the transforms whether they take a draw that depends on ``by``, or fills ``target``."""
    for interp in thread.stack:
        if not interp.dynamic:
            interp.check_draw(name, by, target)


def normal(
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Dims | None = None, *,
    generator: Generator | None = None,
    out: Tensor | None = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal with ``mean`` and ``std``: numbers with a ``size``, or tensors, whose gradients are
    zeros, as in PyTorch (``Normal(mean, std).rsample()`` follows them)."""
    if isinstance(std, Tensor):
        _no_negative(std)
    elif std < 0:
        raise ConfigError(
            f"normal expects std >= 0.0, but found std {std}; it must not be negative"
        )
    like = mean if isinstance(mean, Tensor) else std
    if size is not None:
        shape = as_size((size,), "normal")
    elif isinstance(like, Tensor):
        shape = broadcast("normal", *(getattr(v, "shape", ()) for v in (mean, std)))
        dtype, device = dtype or like.dtype, device or like.device
    else:
        raise TypeError("normal: size is needed where mean and std are numbers")
    check_draw("normal", mean, std)
    spread, centre = (v.detach() if isinstance(v, Tensor) else v for v in (std, mean))
    drawn = _new(draw_normal, shape, dtype, device, False, generator) * spread + centre
    out = _unmoved(drawn, mean, std)
    return out.requires_grad_() if requires_grad else out


def _unmoved(drawn: Tensor, *given: Tensor | float) -> Tensor:
    """``drawn`` in the graph of what it was drawn by, which gets a gradient of 0, as in PyTorch."""
    for x in given:
        if isinstance(x, Tensor) and (thread.mode == SLOW or x.requires_grad):
            drawn = el.where(made_beside(drawn, lambda xp: xp.zeros((), bool)), x, drawn)
    return drawn


def _no_negative(std: Tensor) -> None:
    array = std.__dict__.get("array")
    if array.__class__ is np.ndarray and array.size and not array.min() >= 0:
        raise ConfigError("normal expects all elements of std >= 0.0")


def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probability that ``input`` says (or ``p``), else 0."""
    probabilities = input if p is None else input.detach() * 0 + float(p)
    if not probabilities.dtype.is_floating_point:
        raise DTypeError(f"bernoulli: {input.dtype!r} given; probabilities are floating-point")
    source = source_of(generator, input.device)
    drawn = gate(draw_bernoulli, (probabilities.detach(),), {"generator": source})
    return _unmoved(drawn, input)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson counts with the rates that ``input`` says."""
    kinds("poisson", "fV", as_input(input, "poisson"))
    source = source_of(generator, input.device)
    return _unmoved(gate(draw_poisson, (input.detach(),), {"generator": source}), input)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None, out: Tensor | None = None,
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
    source = source_of(generator, input.device)
    return gate(draw_multinomial, (input.detach(),), {**params, "generator": source})


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
