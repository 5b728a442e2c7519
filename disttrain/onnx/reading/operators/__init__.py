"""Every operator that models may have, by subject: importing it fills the table."""

from . import (
    attention,
    classic,
    contributed,
    control,
    convolution,
    detection,
    elementwise,
    gathering,
    losses,
    machines,
    normalization,
    pooling,
    products,
    quantized,
    random,
    recurrent,
    reductions,
    sampling,
    sequences,
    shapes,
    signal,
    strings,
    transformers,
    trees,
)
from .shapes import literal

__all__ = ["literal"]
