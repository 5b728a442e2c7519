"""What tensors of places and values have in common, whatever form their places have.

Such a tensor has no array. What stands for one tells the gate to compose the operation
(``table.py``). Its place in the graph is that of its values: a leaf has values that are a leaf.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ....backends.array_kinds import ArrayKind
from ....core.composed import Composed
from ....core.tensor import Size, Tensor, beside
from ....core.types import dtypes
from ....errors import AutogradError, DTypeError, LayoutError, ShapeError
from ... import printing
from ...primitives import elementwise as el
from ...primitives import gathering as prim

_new = object.__new__


class SparseArray(ArrayKind):
    """Stands for the array of a sparse tensor: has its type and shape, and no memory."""

    __slots__ = ("dtype", "place", "shape")  # type: ignore[misc]
    weight = 1000
    has_data = False

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, place: tuple) -> None:
        self.shape, self.dtype, self.place = shape, dtype, place

    def run(self, prim: object, arrays: object, params: dict) -> Any:
        raise Composed

    def whole(self) -> Any:
        raise LayoutError(
            "Cannot access the numbers of a sparse tensor as those of a dense one: this operation "
            "is not defined for it; use to_dense() first"
        )


class Structured(Tensor):
    """Values (count, dense dimensions ...) at ``count`` places."""

    _held: Tensor  # the values
    _size: tuple[int, ...]
    derived: tuple[str, ...] = ()  # attributes that others determine
    load: Callable  # gives the function that composes operations: set by who knows it

    @staticmethod
    def _composes(prim: Any, args: tuple, params: dict) -> Any:
        """See ``table.compose``."""
        return Structured.load()(prim, args, params)

    # --- what it is -------------------------------------------------------------------------
    @property
    def array(self) -> Any:
        held = self._held.__dict__.get("array")
        place = held.place if isinstance(held, ArrayKind) else ("cpu", None)
        return SparseArray(self._size, self._held.meta()[1], place)

    @property
    def shape(self) -> Size:
        return Size(self._size)

    @property
    def ndim(self) -> int:
        return len(self._size)

    @property
    def dtype(self) -> dtypes.dtype:
        return self._held.dtype

    @property
    def device(self) -> Any:
        return self._held.device

    @property
    def is_meta(self) -> bool:
        return self._held.is_meta

    def meta(self) -> tuple[tuple[int, ...], np.dtype]:
        return self._size, self._held.meta()[1]

    def _places_shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions that are sparse."""
        raise NotImplementedError

    def dense_dim(self) -> int:
        """How many dimensions each value has."""
        return self._held.ndim - 1

    def sparse_dim(self) -> int:
        """How many dimensions are given by places."""
        return self.ndim - self.dense_dim()

    def _nnz(self) -> int:
        return self._held.meta()[0][0]

    def _values(self) -> Tensor:
        """The values as they are given, without a place in the graph."""
        return self._held.detach()

    def with_values(self, values: Tensor) -> Self:
        """One with ``values`` (count, ...) at the same places."""
        out = _new(self._plain_class())
        out.__dict__.update(self.__dict__)
        out._held, out._size = values, self._places_shape() + tuple(values.shape[1:])
        return out

    def _plain_class(self) -> type[Self]:
        """What the class of a parameter is for all others."""
        found: type[Self] = type(self).__dict__.get("joined_from", (None, type(self)))[1]
        return found

    def index(self, array: np.ndarray) -> Tensor:
        """Numbers of places as a tensor that the values meet in operations."""
        return beside(self._held, np.ascontiguousarray(array, np.int64))

    def places(self) -> tuple[np.ndarray, ...]:
        """The arrays of the host that say where the values are."""
        raise NotImplementedError

    def rows_and_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of a matrix."""
        raise NotImplementedError

    def names_of_parts(self) -> tuple[str, ...]:
        """The attributes that make it what it is."""
        return tuple(sorted(set(vars(self)).difference(self.derived)))

    def flat(self) -> np.ndarray:
        """Places as numbers of rows of the dense tensor, whose sparse dimensions are one."""
        raise NotImplementedError

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The dense tensor. Its gradient comes back to the values."""
        if dtype is not None:
            raise ShapeError("dtype argument is not supported by sparse_to_dense")
        sizes, rest = self._places_shape(), self._held.meta()[0][1:]
        rows = prim.spread(
            self._held, self.index(self.flat()), dim=0, shape=(math.prod(sizes), *rest), skip=None
        )
        return rows.reshape(self._size)

    # --- graph ------------------------------------------------------------------------------
    def graph_node(self) -> Any:
        return self._held.graph_node()

    @property
    def _node(self) -> Any:  # type: ignore[override]
        return self._held.graph_node()

    @property
    def _version(self) -> int:
        return self._held._version

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        self._held.requires_grad_(requires_grad)
        self._held.__dict__["_held_by"] = weakref.ref(self)
        return self

    def retain_grad(self) -> None:
        self._held.retain_grad()

    @property
    def retains_grad(self) -> bool:
        return self._held.retains_grad

    @property
    def _grad(self) -> Tensor | None:  # type: ignore[override]
        return self.grad

    @property
    def grad(self) -> Tensor | None:
        """The gradient: values at the same places."""
        found = self._held.grad
        return None if found is None else self.with_values(found)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Structured):
            raise LayoutError(
                f".grad: a dense gradient given for a tensor of layout {self.layout}; give one of "
                "its layout and places"
            )
        self._held.grad = None if value is None else value._held

    @grad.deleter
    def grad(self) -> None:
        self._held.grad = None

    def detach(self) -> Self:
        return self.with_values(self._held.detach())

    def detach_(self) -> Self:
        self._held = self._held.detach()
        return self

    @property
    def data(self) -> Self:
        """Another one over the same values, without a graph."""
        return self.with_values(self._held.data)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, self._plain_class()):
            raise LayoutError(f"data: a tensor of layout {value.layout} for one of {self.layout}")
        self._take_on(value, self.requires_grad)

    def over(self, other: Self) -> Self:
        """Itself, over the places and values of ``other``, without a graph."""
        self._take_on(other, False)
        return self

    def _take_on(self, other: Any, leaf: bool) -> None:
        """Be ``other`` from now on."""
        self.__dict__.update(other.__dict__)
        self._held = other._held.detach()
        if leaf:
            self._held.requires_grad_()

    # --- copies -----------------------------------------------------------------------------
    def clone(self, *, memory_format: Any = None) -> Self:
        return self.with_values(self._held.clone())

    def __deepcopy__(self, memo: dict) -> Self:
        if not self.is_leaf:
            raise AutogradError(
                "deepcopy: only leaves can be copied with their role; copy t.detach().clone()"
            )
        out = memo[id(self)] = self.__copy__()
        return out

    def __copy__(self) -> Self:
        out = self.with_values(self._held.detach().clone())
        out.__class__ = type(self)  # a parameter's copy is one
        return out.requires_grad_() if self.requires_grad else out

    # --- in place ---------------------------------------------------------------------------
    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError(
            "Cannot assign to a sparse tensor: its places are fixed; make another one, or write to "
            "to_dense()"
        )

    def in_own_type(self, name: str, result: Any) -> Any:
        """What is written over this tensor, which keeps its type."""
        if dtypes.category(result.dtype) > dtypes.category(self.dtype):
            raise DTypeError(
                f"{name}: result type {result.dtype.title} can't be cast to the desired output "
                f"type {self.dtype.title}; use the out-of-place form"
            )
        return result if result.dtype is self.dtype else result.to(self.dtype)

    def mul_(self, other: Any) -> Self:
        result: Any = self.in_own_type("mul_", self.mul(other))
        self.__dict__.update(result.__dict__)
        return self

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        if rounding_mode is not None:
            raise LayoutError("div_: rounding_mode is not supported for sparse tensors")
        if isinstance(other, Tensor) and other.ndim:
            self.div(other)  # which says that there is no such division
        self._held.div_(other)
        return self

    def neg_(self) -> Self:
        self._held.neg_()
        return self

    __imul__, __itruediv__ = mul_, div_

    # --- what it has not --------------------------------------------------------------------
    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        raise ShapeError("Cannot access data pointer of Tensor that doesn't have storage")

    def tolist(self) -> Any:
        raise ShapeError("Cannot access data pointer of Tensor that doesn't have storage")

    def storage(self) -> Any:
        raise LayoutError("Cannot access storage of SparseTensorImpl; see values() and to_dense()")

    untyped_storage = storage

    def stride(self, dim: int | None = None) -> Any:
        return (0,) * self.ndim if dim is None else 0

    def fill_(self, value: Any) -> Any:
        raise LayoutError("Could not run 'aten::fill_' with arguments from the 'SparseCPU' backend")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    def contiguous(self, memory_format: Any = None) -> Tensor:
        raise ShapeError("contiguous: unsupported memory format option for a sparse tensor")

    def item(self) -> Any:
        if self.numel() != 1:
            raise ShapeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.to_dense().item()

    def __float__(self) -> float:
        return float(self.item())

    def __hash__(self) -> int:
        return id(self)

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> Self:
        return self

    def is_shared(self) -> bool:
        return self._held.is_shared()

    def share_memory_(self) -> Self:
        self._held.share_memory_()
        return self

    # --- printing ---------------------------------------------------------------------------
    def _shown(self) -> list[tuple[str, Tensor]]:
        """The parts that are printed before the values, with their names."""
        raise NotImplementedError

    def __repr__(self, *, tensor_contents: object = None) -> str:
        parts = [
            f"{name}={_indented(part, f'       {name}=')}"
            for name, part in (*self._shown(), ("values", self._values()))
        ]
        kind, node = self.dtype, self.graph_node()
        usual = dtypes.get_default_dtype()
        rest = [] if self.device.type == "cpu" else [f"device='{self.device}'"]
        rest += [f"size={tuple(self._size)}", f"nnz={self._nnz()}"]
        if kind not in (usual, dtypes.int64, dtypes.bool, usual.to_complex()):
            rest.append(f"dtype={kind!r}")
        rest.append(f"layout={self.layout!r}")
        if node is not None:
            rest.append("requires_grad=True" if self.is_leaf else f"grad_fn=<{node.name()}>")
        said = ",\n       ".join([*parts, *(rest[:1] if self.layout == "sparse_coo" else ())])
        rest = rest[1:] if self.layout == "sparse_coo" else rest
        name = "" if type(self) is self._plain_class() else f"{type(self).__name__} containing:\n"
        return name + printing.with_suffixes(f"tensor({said}", rest, len("tensor("))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def _indented(part: Tensor, before: str) -> str:
    """How ``part`` prints, with its lines under each other after ``before``; of its type, which
    is that of the whole, nothing."""
    if not part.numel():
        return f"tensor([], size={tuple(part.shape)})"
    return f"tensor({printing.contents(part.detach(), len(before) + len('tensor('))})"


def cast(self: Structured, dtype: np.dtype) -> Structured:
    """With values of another type."""
    return self.with_values(el.cast(self._held, dtype=dtype))


def of_values(func: Callable, inputs: Any) -> tuple[Callable, Any]:
    """``func`` as a function of the values of those ``inputs`` that are sparse, whose results are
    values, too; and these."""
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if not any(isinstance(x, Structured) for x in given):
        return func, inputs

    def plain(*parts: Any) -> Any:
        pairs = zip(given, parts, strict=True)
        out = func(*[x.with_values(v) if isinstance(x, Structured) else v for x, v in pairs])
        return tuple(map(_held, out)) if isinstance(out, (tuple, list)) else _held(out)

    return plain, tuple(map(_held, given))


def _held(x: Any) -> Any:
    return x._held if isinstance(x, Structured) else x
