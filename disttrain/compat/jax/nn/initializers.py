"""``jax.nn.initializers``: those of ``dt.keyed`` with JAX's keys and types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ....arrays.axes import shape_of
from ....keyed import initializers
from .. import random, types
from ..array import Array, wrap

_NAMES = """
constant uniform normal truncated_normal variance_scaling glorot_uniform glorot_normal
xavier_uniform xavier_normal lecun_uniform lecun_normal he_uniform he_normal kaiming_uniform
kaiming_normal orthogonal delta_orthogonal
"""


def _maker(name: str) -> Callable:
    make = getattr(initializers, name)
    signature = inspect.signature(make)

    def maker(*args: Any, **kwargs: Any) -> Callable:
        bound = signature.bind(*args, **kwargs).arguments
        default = bound.pop("dtype", None)
        draw = make(**{n: v._value if isinstance(v, Array) else v for n, v in bound.items()})

        def init(key: Any, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:
            kind = types.asked(float if dtype is None else dtype, "initializer")
            found = key if name == "constant" else random.key_of(name, key)[0]
            return wrap(draw(found, shape_of(shape), kind))

        return init

    maker.__name__ = maker.__qualname__ = name
    maker.__signature__, maker.__doc__ = signature, make.__doc__  # type: ignore[attr-defined]
    return maker


NAMES: dict[str, Any] = {name: _maker(name) for name in _NAMES.split()}
NAMES.update(zeros=NAMES["constant"](0), ones=NAMES["constant"](1))
globals().update(NAMES)
