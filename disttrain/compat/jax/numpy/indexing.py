"""``x[...]`` and ``x.at[...]``: what JAX takes as an index, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....arrays import indexing
from ....arrays.program.updates import Parts
from ..array import wrap
from ..errors import NonConcreteBooleanIndexError
from ..tracing import is_traced
from .lifting import one, plain
from .making import MAKING

_WORDS = (
    "scatter inputs have incompatible types: cannot safely cast value from dtype={kind} to dtype="
    "{own} with jax_numpy_dtype_promotion=standard. In future JAX releases this will result in an "
    "error."
)


def _read(item: Any) -> Any:
    """An index that is neither a number of Python's nor a slice, as a tensor (or a number)."""
    if isinstance(item, str):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    item = plain(item)
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, (list, tuple)):
        item = np.asarray(item) if len(item) else np.zeros(0, np.int32)
    found = one("indexing", item)
    if found.meta()[1].kind == "b" and found.ndim and is_traced(found):
        raise NonConcreteBooleanIndexError(wrap(found))
    return found


def items(key: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of JAX's as one of ``disttrain.arrays.indexing``."""
    if isinstance(key, list):
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
            "`arr[array(seq)]` instead of `arr[seq]`. See https://github.com/jax-ml/jax/issues/4564"
        )
    return indexing.items(key, shape, _read)


PARTS = Parts(MAKING, items, _WORDS)
