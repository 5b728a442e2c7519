"""``jax.scipy``: what is used most of SciPy."""

from . import linalg, signal, special, stats

logsumexp = special.NAMES["logsumexp"]

__all__ = ["linalg", "logsumexp", "signal", "special", "stats"]
