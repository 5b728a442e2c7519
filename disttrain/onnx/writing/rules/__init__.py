"""A rule for each primitive that ONNX can say, by the primitives' subjects. Importing them fills the
table."""

from . import (
    attention,
    convolution,
    draws,
    elementwise,
    gathering,
    losses,
    made,
    normalization,
    pooling,
    products,
    recurrence,
    reductions,
    shapes,
    smooth,
    writes,
)
from ..writer import RULES

__all__ = ["RULES"]
