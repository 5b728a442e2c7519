"""``torch.save``, ``torch.load`` and ``torch.serialization``: with PyTorch's arguments, in this
library's format. Knows arguments; what is in a file is known to ``serialize``."""

from __future__ import annotations

from typing import Any

from ... import serialize
from ...ops.functions.storage import TypedStorage, UntypedStorage
from ...settings import TORCH_FILES
from ..publish import Shim
from .top import storages


def save(
    obj: object,
    f: object,
    pickle_module: object = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    format: str | None = None,  # noqa: A002
) -> None:
    """``serialize.save``. Nothing is pickled, so what is said about pickling has no effect.
    ``format``: "torch" for a file that PyTorch reads; DISTTRAIN_TORCH_FILES=1 makes that what is
    meant where nothing is said."""
    usual = "torch" if TORCH_FILES.flag() else "safetensors"
    serialize.save(obj, f, format=format or usual)


def load(
    f: object,
    map_location: object = None,
    pickle_module: object = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: object,
) -> Any:
    """``serialize.load``. Nothing is unpickled; ``weights_only`` says whether the file may name
    any class. Without it, classes must be allowed, unless a ``pickle_module`` is given."""
    only = pickle_module is None if weights_only is None else weights_only
    return serialize.load(f, map_location, weights_only=only, mmap=mmap)


def is_storage(obj: object) -> bool:
    """``torch.is_storage``."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


def modules() -> dict[str, Shim]:
    """``torch.serialization`` and ``torch.storage``."""
    names = """add_safe_globals clear_safe_globals get_safe_globals safe_globals
    get_unsafe_globals_in_checkpoint get_default_mmap_options set_default_mmap_options
    get_crc32_options set_crc32_options""".split()
    shim = Shim("torch.serialization").take(serialize, names)
    shim.give(save=save, load=load, MAP_LOCATION=Any)
    made = storages.names()
    both = {name: made[name] for name in ("UntypedStorage", "TypedStorage")}
    storage = Shim("torch.storage").give(**both)
    return {"torch.serialization": shim, "torch.storage": storage}
