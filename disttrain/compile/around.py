"""What surrounds a call on its thread, and what of it a capture is made in."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..context import thread
from ..core.types.casting import casting


def only_lightly() -> bool:
    """Whether all that surrounds operations on this thread is autocast, or a function whose
    gradient is taken."""
    around = thread.autocast is not None or thread.inside is not None
    return around and not (thread.stack or thread.anomaly or thread.saving)


def casts_anew() -> AbstractContextManager[Any]:
    """Inside, autocast casts parameters again: what it keeps was cast before, outside."""
    chooser = thread.autocast
    if chooser is None or chooser.cache is None:
        return nullcontext()
    chooser = copy.copy(chooser)
    chooser.cache = {}
    return casting(chooser)


__all__ = ["casts_anew", "only_lightly"]
