"""``jax.scipy``: what is used most of SciPy."""

from . import linalg, signal, special, stats
from .special import logsumexp

__all__ = ["linalg", "logsumexp", "signal", "special", "stats"]
