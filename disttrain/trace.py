"""Where in the user's program are we? Call sites for messages; no state, no tensors."""

from __future__ import annotations

import os
import sys
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def call_site(skip: int = 1) -> str:
    """``file:line in function`` of the innermost frame that is not part of this package.

    ``skip`` frames are passed over without a look. Falls back to the outermost frame seen.
    """
    frame = sys._getframe(skip)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return _describe(frame)


def _describe(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
