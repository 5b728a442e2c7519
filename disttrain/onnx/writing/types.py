"""Element types and values of a model that is being written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ...errors import ConfigError
from ...export.sizes import Size

INT64, FLOAT, BOOL = np.dtype(np.int64), np.dtype(np.float32), np.dtype(bool)


@dataclass(frozen=True)
class Ref:
    """A value of the model: its name, its element type and, where it is known, its shape (ints and
    sizes that are symbols)."""

    name: str
    dtype: np.dtype
    shape: tuple | None = None

    @property
    def rank(self) -> int:
        """How many dimensions it has; its shape is known."""
        assert self.shape is not None, self.name
        return len(self.shape)


class Unmapped(Exception):
    """To the conversion: why a node has no counterpart. Whoever writes models tells all at once."""


def element_type(kind: Any) -> int:
    """ONNX's number of an element type."""
    kind = np.dtype(kind)
    if kind.kind == "c":
        raise Unmapped(f"numbers of type {kind}, which operators of ONNX do not take")
    try:
        return onnx.helper.np_dtype_to_tensor_dtype(kind)
    except (KeyError, ValueError):
        raise Unmapped(f"numbers of type {kind}, which ONNX does not have") from None


def is_number(n: Any) -> bool:
    """Whether a size is a plain number (and not one that depends on the model's input)."""
    return type(n) is int or isinstance(n, np.integer)


def static(shape: Any) -> bool:
    """Whether all sizes are plain numbers."""
    return shape is not None and all(map(is_number, shape))


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are the same number for all inputs."""
    if is_number(a) or is_number(b):
        return is_number(a) and is_number(b) and int(a) == int(b)
    return str(a) == str(b)


def same_shape(a: Any, b: Any) -> bool:
    """Whether two shapes are the same for all inputs."""
    return len(a) == len(b) and all(map(same_size, a, b))


def computed(sign: str, *sizes: Any) -> Any:
    """The sum, difference or product of sizes."""
    if all(map(is_number, sizes)):
        return int(_SIGNS[sign](*map(int, sizes)))
    return Size(f" {sign} ".join(f"({n})" for n in sizes))


_SIGNS = {
    "+": lambda *n: sum(n), "*": lambda *n: math.prod(n), "-": lambda a, b: a - b,
    "//": lambda a, b: a // b,
}  # fmt: skip


def tensor(array: np.ndarray, name: str = "") -> Any:
    """``array`` as a constant of a model."""
    element_type(array.dtype)
    return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def check_opset(opset: Any, least: int, newest: int) -> int:
    """The version of the operator set, which must be one that is written here."""
    if type(opset) is not int or not least <= opset <= newest:
        raise ConfigError(
            f"onnx.export: opset_version={opset!r} given; needed a version of the operator set "
            f"from {least} to {newest}"
        )
    return opset
