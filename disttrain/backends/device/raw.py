"""What the device rules need of the arrays of a device's library, CuPy's or another's."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class RawArray(Protocol):
    """An array that lies on a device: numpy's interface, as far as the rules use it.

    The array API's operators and indexing, with the host's numbers as operands; nothing here reads
    a value, which would wait for the device (``Platform.download`` does).
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any = float, memptr: Any = None) -> None:
        """A new array; ``memptr``: over memory that is there already."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension."""

    @property
    def dtype(self) -> np.dtype:
        """numpy's dtype."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def flags(self) -> Any:
        """``c_contiguous``, ``f_contiguous`` and ``owndata``."""

    @property
    def data(self) -> Any:
        """``ptr``: the address; ``mem``: the piece of memory, one object for all arrays there."""

    @property
    def base(self) -> RawArray | None:
        """The array that this one is a view of."""

    @property
    def real(self) -> RawArray:
        """The real parts, a view of complex ones."""

    @property
    def imag(self) -> RawArray:
        """The imaginary parts."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: object, /) -> RawArray: ...
    def __setitem__(self, index: object, value: object, /) -> None: ...
    def __abs__(self) -> RawArray: ...
    def __neg__(self) -> RawArray: ...
    def __invert__(self) -> RawArray: ...
    def __add__(self, other: object, /) -> RawArray: ...
    def __radd__(self, other: object, /) -> RawArray: ...
    def __sub__(self, other: object, /) -> RawArray: ...
    def __rsub__(self, other: object, /) -> RawArray: ...
    def __mul__(self, other: object, /) -> RawArray: ...
    def __rmul__(self, other: object, /) -> RawArray: ...
    def __truediv__(self, other: object, /) -> RawArray: ...
    def __rtruediv__(self, other: object, /) -> RawArray: ...
    def __floordiv__(self, other: object, /) -> RawArray: ...
    def __mod__(self, other: object, /) -> RawArray: ...
    def __pow__(self, other: object, /) -> RawArray: ...
    def __matmul__(self, other: object, /) -> RawArray: ...
    def __and__(self, other: object, /) -> RawArray: ...
    def __or__(self, other: object, /) -> RawArray: ...
    def __xor__(self, other: object, /) -> RawArray: ...
    def __lshift__(self, other: object, /) -> RawArray: ...
    def __rshift__(self, other: object, /) -> RawArray: ...
    def __lt__(self, other: object, /) -> RawArray: ...
    def __le__(self, other: object, /) -> RawArray: ...
    def __gt__(self, other: object, /) -> RawArray: ...
    def __ge__(self, other: object, /) -> RawArray: ...
    def __eq__(self, other: object, /) -> RawArray: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> RawArray: ...  # type: ignore[override]

    def astype(self, dtype: object, *, copy: bool = True) -> RawArray:
        """The values in another type."""

    def view(self, dtype: object = None, /) -> RawArray:
        """The same bytes, read as another type."""

    def reshape(self, *shape: object) -> RawArray:
        """The same elements in another shape; a view where the strides allow it."""

    def transpose(self, *axes: object) -> RawArray:
        """A view with its dimensions in another order."""

    def swapaxes(self, axis1: int, axis2: int, /) -> RawArray:
        """A view with two dimensions exchanged."""

    def squeeze(self, axis: object = None) -> RawArray:
        """A view without dimensions of one element."""

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> RawArray:
        """A view of the diagonals."""

    def ravel(self, order: object = "C") -> RawArray:
        """The elements in one row; a view where the layout allows it."""

    def copy(self, order: object = "C") -> RawArray:
        """The same values in memory of their own."""

    def fill(self, value: object, /) -> None:
        """Write one value everywhere."""

    def conj(self) -> RawArray:
        """Complex conjugates."""

    def sum(self, axis: object = None, dtype: object = None, keepdims: bool = False) -> RawArray:
        """Sums along ``axis``."""

    def max(self, axis: object = None, *, keepdims: bool = False) -> RawArray:
        """The greatest along ``axis``."""

    def min(self, axis: object = None, *, keepdims: bool = False) -> RawArray:
        """The least along ``axis``."""

    def any(self, axis: object = None) -> RawArray:
        """Whether one along ``axis`` is true."""

    def all(self, axis: object = None) -> RawArray:
        """Whether all along ``axis`` are true."""

    def argsort(self, axis: int = -1) -> RawArray:
        """The places of the elements in ascending order."""

    def cumsum(self, axis: object = None) -> RawArray:
        """Running sums along ``axis``."""

    def searchsorted(self, values: object, side: object = "left") -> RawArray:
        """Where each value belongs among these, which are in ascending order."""

    def nonzero(self) -> tuple[RawArray, ...]:
        """The places of what is not zero, dimension by dimension."""
