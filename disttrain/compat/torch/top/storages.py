"""``FloatStorage`` and its kin: types for isinstance, and functions that make storages."""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt

from ....core.types import dtypes
from ....ops.functions.storage import TypedStorage, UntypedStorage

KINDS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


def _made(kind: dtypes.dtype, args: tuple, device: Any = None) -> dt.Tensor:
    """A vector: so many elements, or these."""
    given: Any = args[0] if args else 0
    if isinstance(given, int):
        return dt.empty(given, dtype=kind, device=device)
    return dt.tensor(list(given), dtype=kind, device=device)


class _Kind(type):
    """``FloatStorage(3)`` (a size), ``FloatStorage([1, 2])`` (elements)."""

    dtype: dtypes.dtype

    def __call__(cls, *args: Any, device: Any = None) -> TypedStorage:
        return TypedStorage(_made(cls.dtype, args, device))

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TypedStorage) and value.dtype is cls.dtype

    def from_buffer(
        cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0
    ) -> TypedStorage:
        """A storage with a copy of the elements of a bytes-like object, in this ``byte_order``
        ("native", "little", "big")."""
        order: Any = {"native": "=", "little": "<", "big": ">"}.get(byte_order)
        if order is None:
            raise ValueError(f"invalid byte_order {byte_order!r}: native, little or big")
        kind = np.dtype(np.uint8) if cls.dtype is dtypes.bool else cls.dtype.np
        found = np.frombuffer(buffer, kind.newbyteorder(order), count, offset)
        native = found != 0 if cls.dtype is dtypes.bool else found.astype(kind)
        return TypedStorage(dt.from_numpy(native))

    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage over ``size`` elements of a file; what is written to a ``shared`` one is
        written to the file."""
        kind = cls.dtype.np
        if shared:  # it is made, and long enough
            with open(filename, "ab") as file:
                file.truncate(max(file.tell(), size * kind.itemsize))
        memory = np.memmap(filename, kind, "r+" if shared else "c", shape=(size,))
        return TypedStorage(dt.from_numpy(memory))


class _Typed(type):
    """``TypedStorage(3, dtype=torch.float32)``."""

    def __call__(cls, *args: Any, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
        if "wrap_storage" in kw:
            memory = kw["wrap_storage"]
            flat = dt.empty(0, dtype=dtype or dt.get_default_dtype())
            return TypedStorage(flat.set_(memory))
        return TypedStorage(_made(dtype or dt.get_default_dtype(), args, device))

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TypedStorage)


class _Untyped(type):
    """``UntypedStorage(3)``: so many bytes."""

    from_file = UntypedStorage.from_file

    def __call__(cls, *args: Any, device: Any = None) -> UntypedStorage:
        if args and isinstance(args[0], dt.Tensor):
            return UntypedStorage(args[0])
        return UntypedStorage(_made(dt.uint8, args, device))

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, UntypedStorage)


_OF = {name: _Kind(f"{name}Storage", (), {"dtype": getattr(dt, k)}) for name, k in KINDS.items()}
_BY_TYPE = {cls.dtype: cls for cls in _OF.values()}


def storage_type(self: dt.Tensor) -> Any:
    """The class of the storage of a tensor of this type."""
    return _BY_TYPE.get(self.dtype, TypedStorage)


def names() -> dict[str, Any]:
    """The classes, by name."""
    found: dict[str, Any] = {f"{name}Storage": cls for name, cls in _OF.items()}
    return {
        **found, "Storage": _OF["Float"], "TypedStorage": _Typed("TypedStorage", (), {}),
        "UntypedStorage": _Untyped("UntypedStorage", (), {}),
    }  # fmt: skip
