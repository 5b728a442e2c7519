"""Operations as XLA's vocabulary has them, on Tensors: elements of one type, dimensions by numbers
(products, convolutions, gathering, scattering), windows, margins of any sign, orders by several
keys.

What is asked of operands is checked, and said in that vocabulary's words (``OperandError``)."""

from __future__ import annotations

from typing import Any

from . import convolutions, elementwise, indexing, products, reductions, shapes, slices

NAMES: dict[str, Any] = {
    **elementwise.NAMES,
    **reductions.NAMES,
    **{
        name: value
        for module in (shapes, slices, indexing, products, convolutions)
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        if name not in ("in_kind", "operands", "convolution")
    },
}
