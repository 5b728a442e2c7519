"""Saved programs: ``dt.export(fn, args)`` makes a ``Program``, which runs without the Python that
made it; ``program.save(path)``, ``dt.load_program(path)``.

The package is callable, since ``dt.export`` is both the place of these names and the function.
"""

import sys
import types
from typing import Any

from .dims import Dim
from .exporting import export as _export
from .files import load_program
from .program import Program
from .sizes import Size
from .values import Graph, Name, Node, Value


class _Callable(types.ModuleType):
    """A module that is called as its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Program:
        return _export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

__all__ = ["Dim", "Graph", "Name", "Node", "Program", "Size", "Value", "load_program"]
