"""Functions of ``jax.numpy`` that make arrays: those of ``arrays.program.making``."""

from ....arrays.program.making import Making
from .lifting import LIFTING


class _Making(Making):
    def __reduce__(self) -> str:  # its functions are pickled by name
        return "MAKING"


MAKING = _Making(LIFTING)
NAMES = MAKING.names()
asarray, copy, typed_maker = MAKING.asarray, MAKING.copy, MAKING.typed
