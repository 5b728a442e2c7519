"""Functions of ``jax.numpy`` that no row can say: those of ``arrays.program.calls``."""

from ....arrays.program.calls import Calls
from . import functions
from .making import MAKING

CALLS = Calls(MAKING, functions.NAMES)
NAMES, size = CALLS.names(), CALLS.size
