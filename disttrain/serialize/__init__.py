"""Files with tensors: ``save``, ``load`` and ``inspect``, in the safetensors format; and which
classes a file may name."""

from .api import get_unsafe_globals_in_checkpoint, inspect, load, save
from .layout import Entry, Header
from .objects import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .options import (
    get_crc32_options,
    get_default_mmap_options,
    set_crc32_options,
    set_default_mmap_options,
)

__outward__ = ("disttrain.serialize", "")

__all__ = [
    "Entry",
    "Header",
    "add_safe_globals",
    "clear_safe_globals",
    "get_crc32_options",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "inspect",
    "load",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_mmap_options",
]
