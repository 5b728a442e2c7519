"""Types that many signatures share: numbers, operands, dimensions, sizes, element types, devices.

For annotations alone: no function looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np

from .tensor import Tensor
from .types.device import device
from .types.dtypes import dtype
from .types.memory_format import memory_format

Number: TypeAlias = int | float | complex
Scalar: TypeAlias = Number | np.generic | Tensor  # a tensor of one element stands for its number
Operand: TypeAlias = Tensor | Number | np.generic | np.ndarray
Dims: TypeAlias = int | Sequence[int]
PerDim: TypeAlias = int | Sequence[int]  # one number for all dimensions, or one for each
DTypeLike: TypeAlias = dtype | np.dtype[Any] | type[Any] | str
DeviceLike: TypeAlias = device | str | int
Format: TypeAlias = memory_format
# Of numbers, also nested sequences.
ArrayLike: TypeAlias = Tensor | np.ndarray | np.generic | Number | Sequence[Any]
Index: TypeAlias = (
    int | np.integer | slice | EllipsisType | Tensor | np.ndarray | Sequence[Any] | None
)


# The rules of a primitive. Those that take its arguments and parameters by name are ``Rule``s.
Rule: TypeAlias = Callable[..., Any]
ShapeRule: TypeAlias = Callable[..., tuple | list]  # -> (shape, dtype), or a list of them
Jvp: TypeAlias = Callable[[tuple, tuple, dict], Any]  # (primals, tangents, params) -> tangents
BatchRule: TypeAlias = Callable[[tuple, tuple, dict, int], tuple]  # -> (out, its batch dimension)
Promotion: TypeAlias = Callable[[tuple], Any]  # arguments -> arguments of one type
Samples: TypeAlias = "Callable[[np.random.Generator], list]"  # -> (args, params), for tests


class Shaped(Protocol):
    """What shape rules and layouts look at: an array of any kind, or what stands for one."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Value(Shaped, Protocol):
    """What derivative rules compute on: arrays in an ordinary backward, tensors in a recorded one.

    The operators mean the same on all of them; ``other`` is another such value, or a number.
    """

    def __getitem__(self, index: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
