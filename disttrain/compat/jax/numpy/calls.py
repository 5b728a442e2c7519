"""Functions of ``jax.numpy`` that no row can say: those of ``arrays.program.calls``."""

from ....arrays.program.calls import Calls
from . import functions
from .making import MAKING


class _Calls(Calls):
    def __reduce__(self) -> str:  # its functions are pickled by name
        return "CALLS"


CALLS = _Calls(MAKING, functions.NAMES)
NAMES, size = CALLS.names(), CALLS.size
