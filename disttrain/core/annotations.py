"""Types that many signatures share: numbers, operands, dimensions, sizes, element types, devices.

For annotations alone: no function looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

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
