"""Small arrays that follow from shapes (weights of a resizing, places of a padding), kept on
devices from one call to the next: what is made of the same numbers is copied there once. Knows no
use of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import context
from ..backends.device.array import DeviceArray
from .tensor import Tensor, beside, wrap
from .types.device import located

_MOST_BYTES = 1 << 16
_MOST_KEPT = 256  # per rank; the one that was not asked for the longest goes


def constant(t: Tensor, array: np.ndarray) -> Tensor:
    """A Tensor over ``array`` to be used with ``t``, as ``beside`` gives it; it is not written to,
    and nobody but the operation that asked for it sees it."""
    given = t.__dict__.get("array")
    if (given is not None and given.__class__ is not DeviceArray) or array.nbytes > _MOST_BYTES:
        return beside(t, array)
    there = located(t.device)
    if there is None:
        return beside(t, array)
    stream = there.platform.current_stream(there.index).handle  # work of others may come before it
    key = (there.platform, there.index, stream, array.dtype, array.shape, array.tobytes())
    kept: dict[Any, DeviceArray] = context.current().slot("core.constants", dict)
    found = kept.pop(key, None)
    if found is None:
        found = there.take(np.ascontiguousarray(array))
        while len(kept) >= _MOST_KEPT:
            kept.pop(next(iter(kept)), None)
    kept[key] = found
    return wrap(found)
