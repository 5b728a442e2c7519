"""The kernels that are written for devices by hand, by name; ``code.py`` says what one is."""

from __future__ import annotations

from .attention import attention, attention_backward
from .checks import within
from .code import Code
from .columns import COLUMNS, UNCOLUMNS
from .gathering import ADD_ROWS, GATHER, TAKE
from .multi_fold import fold_many
from .poisson import POISSON
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
    "ADD_ROWS",
    "BERNOULLI",
    "BERNOULLI_NUMBER",
    "COLUMNS",
    "DROPOUT",
    "DROPOUT_AGAIN",
    "EXPONENTIAL",
    "GATHER",
    "INTEGERS",
    "NORMAL",
    "POISSON",
    "TAKE",
    "UNCOLUMNS",
    "UNIFORM",
    "Code",
    "attention",
    "attention_backward",
    "fold_many",
    "within",
]
