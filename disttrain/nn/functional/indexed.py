"""Maxima of windows with their places: the functions of pooling that always give both."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...core import Tensor
from ...core.types.casting import computes_in
from . import pooling, unpooling


def _with_indices(pool: Callable[..., Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    place = list(inspect.signature(pool).parameters).index("return_indices")

    def run(*args: Any, return_indices: bool = True, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if len(args) > place:
            return pool(*args[:place], True, *args[place + 1 :], **kwargs)
        return pool(*args, **kwargs, return_indices=True)

    run.__name__ = run.__qualname__ = f"{pool.__name__}_with_indices"
    run.__doc__ = f"``{pool.__name__}``, always with the places of what it gives."
    return run


max_pool1d_with_indices = _with_indices(pooling.max_pool1d)
max_pool2d_with_indices = _with_indices(pooling.max_pool2d)
# (which autocast of the CPU leaves as it is, other than ``max_pool3d``)
max_pool3d_with_indices = computes_in("own")(_with_indices(pooling.max_pool3d))
adaptive_max_pool1d_with_indices = _with_indices(pooling.adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(pooling.adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(pooling.adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(unpooling.fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(unpooling.fractional_max_pool3d)
