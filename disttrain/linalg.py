"""``dt.linalg``: norms, products, inverses."""

from .ops.linalg import det, inv
from .ops.products import matmul, norm, vector_norm

__all__ = ["det", "inv", "matmul", "norm", "vector_norm"]
