"""Element types of quantized tensors, how their grids lie, and the numbers that a grid has."""

from __future__ import annotations

import numpy as np

from ..core.types.dtypes import dtype
from ..errors import DTypeError


class qtype(dtype):  # noqa: N801  (as its kin)
    """An element type of numbers that stand for others, by a scale and a zero point."""

    def __init__(self, name: str, np_type: type) -> None:
        super().__init__(name, np_type, "i", -1)
        self.is_signed = self.np.kind == "i"


class qscheme(str):  # noqa: N801
    """How the grids of a tensor lie: one for all or one for each channel; affine, or around 0."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{dtype.namespace}.{str.__str__(self)}"

    __str__ = __repr__

    def __reduce__(self) -> tuple:
        return qscheme, (str.__str__(self),)


qint8, quint8 = qtype("qint8", np.int8), qtype("quint8", np.uint8)
qint32 = qtype("qint32", np.int32)
per_tensor_affine, per_tensor_symmetric = (
    qscheme("per_tensor_affine"), qscheme("per_tensor_symmetric"),
)  # fmt: skip
per_channel_affine, per_channel_symmetric = (
    qscheme("per_channel_affine"), qscheme("per_channel_symmetric"),
)  # fmt: skip
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")

PER_CHANNEL = (per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams)
SYMMETRIC = (per_tensor_symmetric, per_channel_symmetric)
_KINDS = {"int8": qint8, "uint8": quint8, "int32": qint32}


def quantized(kind: object, where: str) -> qtype:
    """The type of that name: ``qint8``, ``quint8`` or ``qint32``, also by that of its integers."""
    found = kind if isinstance(kind, qtype) else _KINDS.get(getattr(kind, "name", str(kind)))
    if found is None:
        raise DTypeError(f"{where}: dtype={kind!r} given; needed one of qint8, quint8, qint32")
    return found


def limits(kind: qtype, reduce_range: bool = False) -> tuple[int, int]:
    """The least and the greatest number of a grid. ``reduce_range``: with one bit less."""
    info = np.iinfo(kind.np)
    if reduce_range and kind is not qint32:
        return int(info.min) // 2, int(info.max) // 2
    return int(info.min), int(info.max)


__all__ = [
    "PER_CHANNEL", "SYMMETRIC", "limits", "per_channel_affine", "per_channel_affine_float_qparams",
    "per_channel_symmetric", "per_tensor_affine", "per_tensor_symmetric", "qint8", "qint32",
    "qscheme", "qtype", "quantized", "quint8",
]  # fmt: skip
