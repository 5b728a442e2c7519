"""Random tensors: samplers, dropout, and the in-place forms that initialisation uses.

The primitives are in ``draws``. Draws are not differentiable in their parameters, except by
composition (``normal(mean, std)`` is ``mean + std * draw``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...backends.array_kinds import ArrayKind
from ...backends.null import NullArray
from ...context import SLOW, thread
from ...core.annotations import DeviceLike, Dims, DTypeLike
from ...core.classes import values_of
from ...core.gate import Primitive, Tracer, gate
from ...core.random import Generator, default_generator, generator_of
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import CPU, META, usable
from ...core.writes import check_captured, touched
from ...errors import ConfigError, DeviceError, DTypeError, ShapeError
from ...symbolic import as_int
from ..primitives import elementwise as el
from ..primitives.batching import made_beside, plain_on_device
from ..primitives.random import (
    draw_bernoulli,
    draw_exponential,
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
from ..primitives.write import writeable
from ..promotion import refuse
from .args import broadcast, kinds
from .args import size as as_size
from .args import tensor as as_input
from .creation.moving import pin_memory as to_pinned
from .inplace import begin, check_writeable, records, write


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
    out = _new(draw_permutation, (as_int(n),), kind, device, requires_grad, generator)
    return to_pinned(out) if pin_memory else out


def _placed(t: Tensor) -> bool:
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


def rand_like(input: Tensor, **options: object) -> Tensor:
    """``rand`` in the shape, type and place of ``input``."""
    if _placed(input):
        return _drawn_like(input, draw_uniform, options)
    return rand(*input.shape, **_like(input, options))


def randn_like(input: Tensor, **options: object) -> Tensor:
    """``randn`` in the shape, type and place of ``input``."""
    if _placed(input):
        return _drawn_like(input, draw_normal, options)
    return randn(*input.shape, **_like(input, options))


def randint_like(input: Tensor, *args: Any, **options: object) -> Tensor:
    """``randint_like(input, [low,] high)``: integers in the shape and type of ``input``."""
    low, high = (0, args[0]) if len(args) == 1 else args
    o = _like(input, options)
    if _placed(input):
        return _drawn_like(input, draw_integers, options, low=int(low), high=int(high))
    return _randint(tuple(input.shape), int(low), int(high), o["dtype"], o["device"],
                    o["requires_grad"], o["generator"])  # fmt: skip


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
    """Normal with ``mean`` and ``std``: numbers with a ``size``, or tensors."""
    if not isinstance(std, Tensor) and std < 0:
        raise ConfigError(f"normal: std={std} given; it must not be negative")
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


# --- in place ----------------------------------------------------------------------------------
def _fill(
    name: str,
    self: Tensor,
    prim: Primitive,
    generator: Generator | None,
    then: Callable[..., Any] | None = None,
    by: tuple = (),
    **params: object,
):
    """Write fresh draws, changed by ``then`` (which goes by the values ``by``), into ``self``.
    Nothing happens on the meta device."""
    array = self.__dict__.get("array")
    apart = CPU if array.__class__ is ndarray else self.device
    if apart is not CPU and self.is_meta:
        return self
    if thread.mode == SLOW:
        check_captured(self, name)
        check_draw(name, *by, target=self)
    source = source_of(generator, apart)
    recording = records(self)
    if recording:
        begin(name, self)
    shape, kind = self.meta()
    if kind.kind not in "fVc" and prim is not draw_integers:
        kind = np.dtype(np.float32)
    params = {"shape": tuple(shape), "dtype": kind, "generator": source, **params}
    if _placed(self):
        value = wrap(self.array.drawn(prim, params, then))
        write(name, self, el.cast(value, dtype=self.meta()[1]), recording, whole=True)
        return self
    if thread.mode == SLOW or recording or apart is not CPU:
        value = gate(prim, (), params)
        value = value if then is None else then(value)
        write(name, self, el.cast(value, dtype=self.meta()[1]), recording, whole=True)
        return self
    value = prim.forward(**params)
    if then is not None:
        value = then(value)
    check_writeable(name, self)
    np.copyto(writeable(self.array), value, casting="unsafe")
    touched(self)
    return self


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal draws."""
    if std < 0:
        raise ConfigError(f"normal_: std={std} given; it must not be negative")
    kinds("normal_", "fVc", self)
    plain = mean == 0 and std == 1
    return _fill("normal_", self, draw_normal, generator, None if plain else _affine(std, mean))


def _affine(scale: float, shift: float) -> Any:
    scale, shift = float(scale), float(shift)
    return lambda x: x * scale + shift if shift else x * scale


def _check_range(where: str, kind: dtypes.dtype, low: float, to: float) -> None:
    """Both ends and their distance are numbers of ``kind``."""
    largest = dtypes.finfo(kind).max
    for name, value in (("from", low), ("to", to), ("to - from", to - low)):
        if not abs(value) <= largest:
            raise ConfigError(
                f"{where}: from={low}, to={to} given; {name} is out of bounds for {kind!r}, whose "
                f"largest number is {largest:.6g}"
            )


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
    kinds("uniform_", "fVc", self)
    _check_range("uniform_", self.dtype, low, to)
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
    kinds("random_", "biufV", self)
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


def bernoulli_(
    self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with 1 (probability ``p``, a number or a tensor) and 0."""
    kinds("bernoulli_", "biufV", self)
    if isinstance(p, Tensor):
        if broadcast("bernoulli_", self.shape, p.shape) != tuple(self.shape):
            raise ShapeError(
                f"bernoulli_: p of shape {list(p.shape)} given for {list(self.shape)}, to which it "
                "must broadcast"
            )
        p = p.detach() if self.is_cuda or isinstance(p, Tracer) else values_of(p)
    elif not 0 <= p <= 1:
        raise ConfigError(f"bernoulli_: p={p} given; a probability lies in [0, 1]")
    return _fill("bernoulli_", self, draw_uniform, generator, lambda x: x < p, (p,))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential draws of rate ``lambd``."""
    if lambd <= 0:
        raise ConfigError(f"exponential_: lambd={lambd} given; it must be positive")
    kinds("exponential_", "fV", self)
    change = None if lambd == 1 else _affine(1.0 / lambd, 0.0)
    return _fill("exponential_", self, draw_exponential, generator, change)


def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy draws."""
    if sigma <= 0:
        raise ConfigError(f"cauchy_: sigma={sigma} given; it must be positive")
    return _fill("cauchy_", self, draw_uniform, generator, lambda u: _cauchy(u, median, sigma))


def _cauchy(u: Tracer | ndarray, median: float, sigma: float) -> Any:
    angle = (u - 0.5) * np.pi
    return el.tan(angle) * sigma + median


def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with draws whose logarithm is normal with ``mean`` and ``std``."""
    if std <= 0:
        raise ConfigError(f"log_normal_: std={std} given; it must be positive")
    return _fill("log_normal_", self, draw_normal, generator, lambda x: el.exp(x * std + mean))


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials up to the first success of probability ``p``."""
    if not 0 < p < 1:
        raise ConfigError(f"geometric_: p={p} given; it must lie between 0 and 1")
    rate = float(np.log1p(-p))
    return _fill(
        "geometric_", self, draw_uniform, generator,
        lambda u: el.ceil(el.log(1 - u) * (1 / rate)),
    )  # fmt: skip


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
