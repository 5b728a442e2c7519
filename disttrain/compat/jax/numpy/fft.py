"""``jax.numpy.fft``: a table over ``disttrain.arrays.spectra``."""

from __future__ import annotations

from typing import Any

from .... import fft as native
from ....arrays import spectra
from .lifting import function
from .making import typed_maker

NAMES: dict[str, Any] = {
    name: function(name, fn, "a", "inexact") for name, fn in spectra.FUNCTIONS.items()
}
for _name in ("fftshift", "ifftshift"):
    NAMES[_name] = function(_name, getattr(spectra, _name), "x", "same")
for _name in ("fftfreq", "rfftfreq"):
    NAMES[_name] = typed_maker(_name, getattr(native, _name))
globals().update(NAMES)
__all__ = list(NAMES)
