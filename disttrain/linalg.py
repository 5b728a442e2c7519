"""``dt.linalg``: norms, products, inverses."""

from .ops.functions.linalg import matmul, norm, vector_norm
from .ops.primitives.linalg import det, inv

__all__ = ["det", "inv", "matmul", "norm", "vector_norm"]
