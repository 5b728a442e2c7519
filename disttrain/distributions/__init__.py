"""Probability distributions: samples, log-probabilities, entropies. PyTorch's names and meaning."""

from .discrete import Bernoulli, Categorical
from .distribution import Distribution
from .normal import Normal

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal"]
