"""``dt.quasirandom``: points that fill the unit cube evenly, under the names of
``torch.quasirandom``."""

from .engine import SobolEngine

__all__ = ["SobolEngine"]
