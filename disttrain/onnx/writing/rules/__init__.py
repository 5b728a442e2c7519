"""A rule for each primitive that ONNX can say, by the primitives' subjects. Importing them fills
the table."""

from ..writer import RULES
from . import (
    attention,
    convolution,
    draws,
    elementwise,
    gathering,
    loops,
    losses,
    made,
    normalization,
    pairs,
    pooling,
    products,
    quantization,
    recurrence,
    reductions,
    shapes,
    smooth,
    writes,
)

__all__ = ["RULES"]
