"""Element types of PyTorch that only have a name: no element of them can be made, there as here."""

from __future__ import annotations

from typing import Any

from ....core.types.dtypes import dtype
from ....errors import DTypeError

_SMALL = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
_BITS = {"bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2}
_FLOATS = {"float4_e2m1fn_x2": 1}
_COMPLEX = {"complex32": 4}


class _Bare(dtype):
    """A type without elements."""

    def __init__(self, name: str, itemsize: int, kind: str) -> None:
        self.name, self.itemsize, self.rank = name, itemsize, -1
        self.is_floating_point, self.is_complex = kind == "f", kind == "c"
        self.is_signed = kind in "fc" or name.startswith("int")

    @property
    def np(self) -> Any:  # type: ignore[override]
        """There is none."""
        raise DTypeError(f"{self!r} has no elements here, as in most of PyTorch; use another type")


def names() -> dict[str, Any]:
    """The types, by name."""
    sizes = {"i": dict.fromkeys(_SMALL, 1), "b": _BITS, "f": _FLOATS, "c": _COMPLEX}
    found = {n: _Bare(n, size, k) for k, each in sizes.items() for n, size in each.items()}
    return {**found, "chalf": found["complex32"], "bit": found["bits8"], "jagged": "jagged"}
