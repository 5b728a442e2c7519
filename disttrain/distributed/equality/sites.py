"""The line of the program that calls this package."""

from __future__ import annotations

import os
import sys
from types import CodeType

from ...comm.calls.header import Site

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_MOST = 4096
_known: dict[tuple[int, int], tuple[Site, CodeType]] = {}


def here() -> Site:
    """Of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    code, line = frame.f_code, frame.f_lineno
    key = (id(code), line)
    found = _known.get(key)
    if found is None or found[1] is not code:
        if len(_known) > _MOST:
            _known.clear()
        found = _known[key] = Site(code, line), code  # its id stays its own
    return found[0]
