"""Numbers that are drawn: by the generator of the program, or by a seed that the model has."""

from __future__ import annotations

import math
import struct
from typing import Any

from ....core.random import Generator
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....ops import api
from ..elements import held_in
from ..table import operator
from .elementwise import check_count


def _generator(seed: float | None) -> Generator | None:
    if seed is None:
        return None
    return Generator().manual_seed(int(struct.unpack("<Q", struct.pack("<d", float(seed)))[0]) >> 1)


def _normal(shape: Any, kind: dtypes.dtype, mean: float, scale: float, seed: Any) -> Tensor:
    check_count(math.prod(shape), 1 << 28)
    out = api.randn(tuple(shape), generator=_generator(seed), dtype=dtypes.float32)
    return (out * scale + mean).to(kind)


def _uniform(shape: Any, kind: dtypes.dtype, low: float, high: float, seed: Any) -> Tensor:
    check_count(math.prod(shape), 1 << 28)
    out = api.rand(tuple(shape), generator=_generator(seed), dtype=dtypes.float32)
    return (out * (high - low) + low).to(kind)


@operator("RandomNormal")
def _random_normal(
    *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None, shape: Any
) -> Tensor:
    return _normal(shape, held_in(dtype), mean, scale, seed)


@operator("RandomNormalLike")
def _random_normal_like(
    x: Tensor, *, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Tensor:
    return _normal(x.shape, x.dtype if dtype is None else held_in(dtype), mean, scale, seed)


@operator("RandomUniform")
def _random_uniform(
    *, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: Any = None, shape: Any
) -> Tensor:
    return _uniform(shape, held_in(dtype), low, high, seed)


@operator("RandomUniformLike")
def _random_uniform_like(
    x: Tensor, *, dtype: Any = None, low: float = 0.0, high: float = 1.0, seed: Any = None
) -> Tensor:
    return _uniform(x.shape, x.dtype if dtype is None else held_in(dtype), low, high, seed)


@operator("Bernoulli")
def _bernoulli(x: Tensor, *, dtype: Any = None, seed: Any = None) -> Tensor:
    drawn = api.rand(tuple(x.shape), generator=_generator(seed), dtype=dtypes.float32)
    return (drawn < x).to(x.dtype if dtype is None else held_in(dtype))


@operator("Multinomial")
def _multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: Any = None) -> Tensor:
    check_count(x.shape[0] * sample_size, 1 << 28)
    chances = api.softmax(x.to(dtypes.float32), -1)
    drawn = api.multinomial(chances, sample_size, True, generator=_generator(seed))
    return drawn.to(held_in(dtype))
