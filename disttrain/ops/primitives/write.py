"""Primitives that write: ``assign`` into memory, and ``view_write``, a base with some elements
replaced, which is what derivatives see of a write through a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..declare import primitive
from .batching import fronted
from .views import expand, getitem, permute, reshape

ndarray = np.ndarray


def _assign(dst: Any, src: Any) -> Any:
    np.copyto(dst, src, casting="unsafe")
    return dst


assign = primitive("assign", _assign, "dst src", mutates=(0,))


def _through(array: Any, chain: tuple) -> Any:
    for prim, params in chain:
        array = prim(array, **params)
    return array


def _view_write(base: Any, value: Any, chain: tuple) -> Any:
    out = base.copy(order="K")
    region = _through(out, chain)
    region[...] = value
    return out


def _view_write_base(g: Any, chain: tuple) -> Any:
    return view_write(g, _through(g, chain) * 0, chain=chain)


# How the parameters of a view change when a batch dimension of some size comes in front.
_BEHIND_BATCH: dict[Any, Callable[[dict, int], dict]] = {
    getitem: lambda how, size: {"index": (slice(None), *how["index"])},
    permute: lambda how, size: {"dims": (0, *(d + 1 for d in how["dims"]))},
    reshape: lambda how, size: {"shape": (size, *how["shape"])},
    expand: lambda how, size: {"shape": (size, *how["shape"])},
}


def _view_write_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """Write through the same views, behind the batch dimension."""
    chain = tuple((prim, _BEHIND_BATCH[prim](how, size)) for prim, how in params["chain"])
    base, value = (fronted(a, d, size) for a, d in zip(args, dims, strict=True))
    return view_write(base, value, chain=chain), 0


view_write = primitive(
    "view_write", _view_write, "base value",
    vjp={"base": _view_write_base, "value": lambda g, chain: _through(g, chain)},
    jvp="linear", shape=lambda base, value, chain: (base.shape, base.dtype),
    batch=_view_write_batch,
)  # fmt: skip
