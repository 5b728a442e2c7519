"""``jax.scipy.signal``: convolutions and trends removed, by ``disttrain.arrays.filters``."""

from __future__ import annotations

from ....arrays import filters
from ..numpy.lifting import function

NAMES = {name: function(name, fn, "in1 in2", "inexact") for name, fn in filters.SIGNAL.items()}
NAMES["detrend"] = function("detrend", filters.detrend, "data", "inexact")
globals().update(NAMES)
__all__ = list(NAMES)
