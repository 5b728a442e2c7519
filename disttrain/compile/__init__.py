"""Capture and replay: ``dt.compile(fn)``, and ``disttrain.compile.capture`` for the graph itself.

The package is callable, since ``dt.compile`` is both the place of these names and the function;
``dt.jit`` is the function alone.
"""

import sys
import types
from typing import Any

from ..core.bodies import Body
from .bodies import shorten
from .capture import capture
from .compiled import Compiled, forward_of
from .compiled import compile as _compile
from .compiled import compile as jit
from .graph import Graph
from .instruction import Instruction, Var
from .passes import dead_code
from .stance import set_stance


class _Callable(types.ModuleType):
    """A module that is called as its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _compile(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
Body.shorten = staticmethod(shorten)  # type: ignore[assignment]

__all__ = [
    "Compiled",
    "Graph",
    "Instruction",
    "Var",
    "capture",
    "dead_code",
    "forward_of",
    "jit",
    "set_stance",
]
