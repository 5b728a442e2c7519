"""Functions of ``jax.numpy`` that make arrays: those of ``arrays.program.making``."""

from ....arrays.program.making import Making
from .lifting import LIFTING

MAKING = Making(LIFTING)
NAMES = MAKING.names()
asarray, copy, typed_maker = MAKING.asarray, MAKING.copy, MAKING.typed
