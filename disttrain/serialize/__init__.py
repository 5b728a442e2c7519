"""Files with tensors: ``save``, ``load`` and ``inspect``, in the safetensors format; which classes
a file may name; folders of models in Hugging Face's layout; ``gguf``, the files of llama.cpp."""

from . import gguf
from .api import get_unsafe_globals_in_checkpoint, inspect, load, save
from .layout import Entry, Header
from .objects import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .options import (
    get_crc32_options,
    get_default_mmap_options,
    set_crc32_options,
    set_default_mmap_options,
)
from .pretrained import (
    from_pretrained,
    read_config,
    read_pretrained,
    save_characters,
    save_pretrained,
)

__outward__ = ("disttrain.serialize", "")

__all__ = [
    "Entry",
    "Header",
    "add_safe_globals",
    "clear_safe_globals",
    "from_pretrained",
    "get_crc32_options",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "gguf",
    "inspect",
    "load",
    "read_config",
    "read_pretrained",
    "safe_globals",
    "save",
    "save_characters",
    "save_pretrained",
    "set_crc32_options",
    "set_default_mmap_options",
]
