"""Quantized tensors: integers that stand for numbers by a grid.

``QuantizedTensor`` has no array of its own; what operations it has stands in a table by names of
primitives. Those that only move elements move the integers; those whose results are numbers of the
same grid, or are rounded to it, go through floating point. Everything else says so, and wants
``dequantize()`` first. No operation on it is recorded for backward.
"""

from __future__ import annotations

import copyreg
import math
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..core import Tensor
from ..core.composed import Composed
from ..core.gate import Primitive
from ..core.tensor import Size
from ..core.types.dtypes import dtype
from ..errors import AutogradError, DTypeError
from .grids import Grid
from .types import per_channel_affine, per_channel_affine_float_qparams, per_tensor_affine, qtype

_new = object.__new__
_IN_ORDER = np.zeros(1).flags
_ADVICE = "call dequantize() first, or let quantize.FloatFunctional do it"


class _QuantizedArray(ArrayKind):
    """Stands for the array of the numbers, which are of float32: has a shape, and no memory."""

    __slots__ = ("shape",)  # type: ignore[misc]
    weight = 900
    has_data = False
    dtype = np.dtype(np.float32)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    @property
    def strides(self) -> tuple[int, ...]:
        """As if in order: in which order the integers lie is their own affair."""
        steps = [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        return tuple(step * self.dtype.itemsize for step in steps)

    @property
    def flags(self) -> Any:
        return _IN_ORDER

    def run(self, prim: object, arrays: object, params: dict) -> Any:
        raise Composed

    def whole(self) -> NoReturn:
        raise DTypeError(f"Cannot read the numbers of a quantized tensor as an array; {_ADVICE}")


class QuantizedTensor(Tensor):
    """``levels``: its integers; ``grid``: what they stand for; ``kind``: its element type."""

    is_quantized = True
    levels: Tensor
    grid: Grid
    kind: qtype

    @staticmethod
    def _composes(prim: Primitive, args: tuple, params: dict) -> Any:
        return compose(prim, args, params)

    # --- what it is -----------------------------------------------------------------------------
    @property
    def array(self) -> Any:
        return _QuantizedArray(self.levels.meta()[0])

    @property
    def shape(self) -> Size:
        return self.levels.shape

    @property
    def ndim(self) -> int:
        return self.levels.ndim

    @property
    def dtype(self) -> dtype:
        return self.kind

    @property
    def device(self) -> Any:
        return self.levels.device

    @property
    def itemsize(self) -> int:
        return self.kind.itemsize

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes

    def element_size(self) -> int:
        return self.kind.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """How the integers lie, in elements."""
        return self.levels.stride(dim)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the integers lie in order."""
        how = {} if memory_format is None else {"memory_format": memory_format}
        return bool(self.levels.is_contiguous(**how))

    def meta(self) -> tuple[tuple[int, ...], np.dtype]:
        return self.levels.meta()[0], _QuantizedArray.dtype

    def with_levels(self, levels: Tensor) -> Self:
        """One on the same grid."""
        out = _new(type(self))
        out.levels, out.grid, out.kind = levels, self.grid, self.kind
        return out

    def rounded_as(self, x: Tensor) -> Self:
        """The numbers of ``x`` on this grid."""
        self._is_per(None, "operations")
        return self.with_levels(self.grid.levels(x, self.kind))

    def qscheme(self) -> Any:
        """How the grid lies."""
        if self.grid.axis is None:
            return per_tensor_affine
        fractions = self.grid.tensors[1].dtype.is_floating_point
        return per_channel_affine_float_qparams if fractions else per_channel_affine

    def q_scale(self) -> float:
        self._is_per(None, "q_scale")
        return float(self.grid.scale)

    def q_zero_point(self) -> int:
        self._is_per(None, "q_zero_point")
        return int(self.grid.zero)

    def q_per_channel_scales(self) -> Tensor:
        self._is_per("channel", "q_per_channel_scales")
        return self.grid.tensors[0].double()

    def q_per_channel_zero_points(self) -> Tensor:
        self._is_per("channel", "q_per_channel_zero_points")
        zero = self.grid.tensors[1]
        return zero if zero.dtype.is_floating_point else zero.long()

    def q_per_channel_axis(self) -> int:
        self._is_per("channel", "q_per_channel_axis")
        return int(self.grid.axis or 0)

    def _is_per(self, what: str | None, name: str) -> None:
        if (self.grid.axis is None) != (what is None):
            needed = "one grid for all elements" if what is None else "a grid for each channel"
            raise DTypeError(f"{name}: needed a tensor with {needed}, not {self.qscheme()!r}")

    # --- what it stands for ---------------------------------------------------------------------
    def dequantize(self) -> Tensor:
        """The numbers, in float32."""
        found: Tensor = self.grid.numbers(self.levels)
        return found

    def int_repr(self) -> Tensor:
        """The integers."""
        return self.levels.clone()

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise DTypeError(f"numpy: cannot convert a quantized tensor; {_ADVICE}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.numpy()

    def tolist(self) -> Any:
        return self.dequantize().tolist()

    def item(self) -> Any:
        return self.dequantize().item()

    def equal(self, other: Tensor) -> bool:
        """Whether ``other`` has the same type, grid and integers."""
        if not isinstance(other, QuantizedTensor) or other.kind is not self.kind:
            return False
        grids = zip(self.grid.tensors, other.grid.tensors)
        same = self.grid.axis == other.grid.axis and all(a.equal(b) for a, b in grids)
        return bool(same and self.levels.equal(other.levels))

    # --- copies ---------------------------------------------------------------------------------
    def clone(self, *, memory_format: Any = None) -> Self:
        return self.with_levels(self.levels.clone())

    def detach(self) -> Self:
        return self.with_levels(self.levels.detach())

    def contiguous(self, memory_format: Any = None) -> Self:
        return self.with_levels(self.levels.contiguous())

    def cpu(self, memory_format: Any = None) -> Self:
        return self.with_levels(self.levels.cpu())

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> Self:
        out = memo[id(self)] = self.clone()
        return out

    def __reduce_ex__(self, protocol: object) -> Any:
        state = {"levels": self.levels, "grid": self.grid, "kind": self.kind}
        return copyreg.__newobj__, (QuantizedTensor,), state  # type: ignore[attr-defined]

    def copy_(self, other: Tensor, non_blocking: bool = False) -> Self:
        """Take the numbers of ``other``, rounded to this grid; of a quantized tensor its integers
        and its grid."""
        if isinstance(other, QuantizedTensor):
            if other.kind is not self.kind or tuple(other.shape) != tuple(self.shape):
                raise DTypeError("copy_: quantized tensors of different types or shapes")
            self.levels.copy_(other.levels)
            self.grid = other.grid
        else:
            self.levels.copy_(self.grid.levels(other, self.kind))
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        if requires_grad:
            raise AutogradError(
                "requires_grad_: quantized tensors have no gradient; train with FakeQuantize"
            )
        return self

    def __repr__(self) -> str:
        scheme = repr(self.qscheme())
        grid = (
            f"scale={self.grid.scale}, zero_point={self.grid.zero}"
            if self.grid.axis is None
            else f"scale={self.grid.scale.tolist()}, zero_point={self.grid.zero.tolist()}, "
            f"axis={self.grid.axis}"
        )
        return (
            f"{repr(self.dequantize())[:-1]}, size={tuple(self.shape)}, dtype={self.kind!r}, "
            f"quantization_scheme={scheme}, {grid})"
        )


def made(levels: Tensor, grid: Grid, kind: qtype) -> QuantizedTensor:
    """The quantized tensor of these integers."""
    out = _new(QuantizedTensor)
    out.levels, out.grid, out.kind = levels, grid, kind
    return out


# --- operations ----------------------------------------------------------------------------------
_MOVES = (
    "reshape permute expand getitem flip roll take gather clone to_copy unbind split as_strided"
)
# On their argument's grid: what these give is on it, or is rounded to it.
_SAME = """relu clip max_pool avg_pool mean amax amin maximum minimum where pad_constant sort
abs eq ne lt le gt ge isnan isinf isfinite argmax argmin argsort top_places gelu
avg_pool_spread"""
_FIXED = {"sigmoid": (1 / 256, 0), "tanh": (2 / 256, 128)}  # grids for what they can give (quint8)


def _moved(prim: Primitive, x: QuantizedTensor, *args: Any, **params: Any) -> Any:
    if x.grid.axis is not None and prim.name not in ("clone", "to_copy"):
        raise _missing(prim, "with a grid for each channel")
    out = prim(x.levels, *args, **params)
    return tuple(map(x.with_levels, out)) if isinstance(out, tuple) else x.with_levels(out)


def _on_same(prim: Primitive, *args: Any, **params: Any) -> Any:
    x = next(a for a in args if isinstance(a, QuantizedTensor))
    if x.grid.axis is not None:
        raise _missing(prim, "with a grid for each channel")
    out = prim(*map(floats, args), **params)
    return x.rounded_as(out) if out.dtype.is_floating_point else out


def _fixed(prim: Primitive, x: QuantizedTensor, **params: Any) -> QuantizedTensor:
    scale, zero = _FIXED[prim.name]
    zero = zero if x.kind.np.kind == "u" else zero - 128
    grid = Grid(scale, zero)
    return made(grid.levels(prim(x.dequantize(), **params), x.kind), grid, x.kind)


def floats(value: Any) -> Any:
    """The numbers of a quantized tensor; anything else as it is."""
    return value.dequantize() if isinstance(value, QuantizedTensor) else value


def _cast(prim: Primitive, x: QuantizedTensor, dtype: np.dtype) -> Any:
    return prim(x.dequantize(), dtype=dtype)


_COMPOSED: dict[str, Callable] = {
    **dict.fromkeys(_MOVES.split(), _moved),
    **dict.fromkeys(_SAME.split(), _on_same),
    **dict.fromkeys(_FIXED, _fixed),
    "cat": _on_same,
    "stepwise": _on_same,
    "assign": lambda prim, target, value: target.copy_(value),
    "cast": _cast,
}


def _missing(prim: Primitive, which: str = "") -> DTypeError:
    return DTypeError(
        f"Could not run '{prim.name}' with arguments from the 'QuantizedCPU' backend: it is not "
        f"defined for quantized tensors{' ' * bool(which)}{which}; {_ADVICE}"
    )


def compose(prim: Primitive, args: tuple, params: dict) -> Any:
    """``prim(*args, **params)``, where one of ``args`` is quantized."""
    found = _COMPOSED.get(prim.name)
    if found is None:
        raise _missing(prim)
    return found(prim, *args, **params)


__all__ = ["QuantizedTensor", "compose", "floats", "made"]
