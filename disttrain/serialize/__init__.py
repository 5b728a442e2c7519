"""Files with tensors: ``save``, ``load`` and ``inspect``, in the safetensors format."""

from .api import inspect, load, save
from .layout import Entry, Header

__all__ = ["Entry", "Header", "inspect", "load", "save"]
