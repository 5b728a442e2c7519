"""The divergence of Kullback and Leibler between two distributions: the formulas, and which of them
is taken for two classes."""

from . import formulas
from .dispatch import kl_divergence, register_kl

__all__ = ["kl_divergence", "register_kl"]
