"""Draws from distributions of their arguments, beside those of ``random.py``, and draws written
into tensors, as initialisation does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...context import SLOW, thread
from ...core.classes import values_of
from ...core.gate import Primitive, Tracer, gate
from ...core.random import Generator
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.device import CPU
from ...core.writes import check_captured, touched
from ...errors import ConfigError, DTypeError, ShapeError
from ...trace import warn
from ..primitives import elementwise as el
from ..primitives.random import draw_exponential, draw_integers, draw_normal, draw_uniform
from ..primitives.sampling import draw_binomial, draw_dirichlet, draw_gamma, draw_von_mises
from ..primitives.write import writeable
from ..promotion import same_type
from .args import broadcast, kinds
from .args import tensor as as_input
from .inplace import begin, check_writeable, records, write
from .random import DIGITS, check_draw, placed, source_of


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` trials succeed, each with the probability ``prob``."""
    for name, given in (("count", count), ("prob", prob)):
        if not as_input(given, "binomial", name).dtype.is_floating_point:
            raise DTypeError(f"binomial: {name} of {given.dtype!r} given; needed a floating type")
    same_type("binomial", count, prob)
    source = source_of(generator, count.device)
    return gate(draw_binomial, (count.detach(), prob.detach()), {"generator": source})


def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of the shapes that ``input`` says, which get gradients."""
    return gate(draw_gamma, (input,), {"generator": source_of(generator, input.device)})


def standard_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Points of simplices, of the concentrations in the last dimension, which get gradients."""
    return gate(draw_dirichlet, (input,), {"generator": source_of(generator, input.device)})


def standard_von_mises(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Angles about 0 with the concentrations that ``input`` says."""
    return gate(
        draw_von_mises, (input.detach(),), {"generator": source_of(generator, input.device)}
    )


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
    if placed(self):
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
        raise ConfigError(
            f"normal_ expects std >= 0.0, but found std {std}; it must not be negative"
        )
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
    self: Tensor, *args: int | None, generator: Generator | None = None, **kwargs: Any
) -> Tensor:
    """``random_()``, ``random_(to)``, ``random_(from, to)``: integers from ``from`` on, below
    ``to``; ``random_(from, None)``: up to the largest that the type counts to."""
    if len(args) == 1:
        kwargs["to"] = args[0]
    elif len(args) == 2:
        kwargs["from"], kwargs["to"] = args
    from_, to = kwargs.pop("from", None), kwargs.pop("to", None)
    if kwargs:
        raise TypeError(f"random_: unexpected arguments {sorted(kwargs)}")
    kinds("random_", "biufV", self)
    low = 0 if from_ is None else int(from_)
    high = _all_values(self.dtype) if to is None else int(to)
    if low >= high:
        raise ConfigError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    _check_drawn(self.dtype, low, high)
    return _fill("random_", self, draw_integers, generator, low=low, high=high)


def _check_drawn(kind: dtypes.dtype, low: int, high: int) -> None:
    """Refuse integers that ``kind`` does not have; warn of those that it rounds."""
    ends = (("from", low), ("to - 1", high - 1))
    if kind.is_floating_point:
        info = dtypes.finfo(kind)
        least, most = max(int(info.min), -(1 << 63)), min(int(info.max), (1 << 63) - 1)
    else:
        least, most = (
            (0, 1) if kind is dtypes.bool else (np.iinfo(kind.np).min, np.iinfo(kind.np).max)
        )
    for name, value in ends:
        if not least <= value <= most:
            raise ConfigError(f"random_: {name} is out of bounds for {kind!r}: {value} given")
    exact = 1 << DIGITS.get(kind.name, 64)
    for name, value in ends:
        if kind.is_floating_point and not -exact <= value <= exact:
            warn(
                f"random_: {name} is out of bounds [-(2^{DIGITS[kind.name]}), "
                f"2^{DIGITS[kind.name]}]: {kind!r} does not have every integer there"
            )


def _all_values(kind: dtypes.dtype) -> int:
    """One more than the largest integer that ``random_()`` draws for this type."""
    if kind is dtypes.bool:
        return 2
    if kind.np.kind in "iu":
        return int(np.iinfo(kind.np).max) + (0 if kind.itemsize == 8 else 1)
    return (1 << DIGITS.get(kind.name, 24)) + 1


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


__all__ = ["binomial"]
