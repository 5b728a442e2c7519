"""The kernels that are written for devices by hand, by name; ``code.py`` says what one is."""

from __future__ import annotations

from .code import Code
from .randomness import (
    BERNOULLI,
    BERNOULLI_NUMBER,
    DROPOUT,
    DROPOUT_AGAIN,
    EXPONENTIAL,
    INTEGERS,
    NORMAL,
    UNIFORM,
)

__all__ = [
    "BERNOULLI",
    "BERNOULLI_NUMBER",
    "DROPOUT",
    "DROPOUT_AGAIN",
    "EXPONENTIAL",
    "INTEGERS",
    "NORMAL",
    "UNIFORM",
    "Code",
]
