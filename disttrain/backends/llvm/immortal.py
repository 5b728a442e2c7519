"""What native code or CPython points to lives as long as the process: nothing gives it back.

At the interpreter's end modules are cleared in an order that nobody chooses. Functions outlive the
cache that held their definitions, and daemon threads go on in machine code without the GIL. So no
module, cache or object holds such memory: it has one reference more than anybody can drop. Every
piece of machine code, and every block whose address CPython or machine code keeps, goes through
here. There are as many as kernels, and the system takes them all back.
"""

from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")


def immortal(thing: T) -> T:
    """``thing``, and what it refers to, which from now on are never given back."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


__all__ = ["immortal"]
