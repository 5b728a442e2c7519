"""Probability distributions: samples, log-probabilities, entropies. PyTorch's names and meaning."""

from . import constraints
from .discrete import Bernoulli, Categorical
from .distribution import Distribution
from .independent import Independent
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, Laplace
from .normal import Normal
from .positive import Exponential, Uniform

__all__ = [
    "Bernoulli", "Categorical", "Cauchy", "Distribution", "Exponential", "Gumbel", "Independent",
    "Laplace", "Normal", "Uniform", "constraints",
    "kl_divergence", "register_kl",
]  # fmt: skip
