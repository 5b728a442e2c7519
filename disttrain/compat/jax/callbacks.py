"""``pure_callback``, ``io_callback``, ``debug.print`` and ``debug.callback``: JAX's names over
``func.trees.callbacks``."""

from __future__ import annotations

from ...func.trees.callbacks import Callbacks
from .avals import aval_of
from .errors import JaxRuntimeError
from .flat import BORDER

_CALLBACKS = Callbacks(BORDER, aval_of, JaxRuntimeError)
pure_callback, io_callback = _CALLBACKS.pure_callback, _CALLBACKS.io_callback
debug_callback, debug_print = _CALLBACKS.debug_callback, _CALLBACKS.debug_print


def effects_barrier() -> None:
    """All effects have happened: they do when they are due."""
