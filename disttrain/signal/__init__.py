"""``dt.signal``: what signals are weighted with, under the names of ``torch.signal``."""

from . import windows

__all__ = ["windows"]
