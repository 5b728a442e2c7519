"""Where in the user's program are we? Call sites, warnings of them; no state, no tensors."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import warnings
from types import FrameType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_NOT_THE_PROGRAM = (_HERE, contextlib.__file__, functools.__file__)


def call_site(skip: int = 1) -> str:
    """``file:line in function`` of the innermost frame that is not part of this package.

    ``skip`` frames are passed over without a look. Falls back to the outermost frame seen.
    """
    frame = sys._getframe(skip)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return _describe(frame)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line of the program that has called this package, however many of its own calls
    lie between. (``skip_file_prefixes`` of ``warnings.warn`` is not in every Python.)"""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def logger(name: str) -> Any:
    """The log of that name. ``logging`` is loaded with the first message, which few jobs have."""
    return importlib.import_module("logging").getLogger(name)


def _describe(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
