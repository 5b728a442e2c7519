"""The operators and methods of JAX's arrays, attached to the class: functions of ``jax.numpy`` with
the array in front. Python's own protocols beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....arrays.program import protocols
from .. import errors, tracing, types
from ..array import Array, wrap
from ..jaxpr import ShapedArray
from . import calls, elementwise, functions, indexing, making
from .lifting import NUMBERS

_FUNCTIONS = {**functions.NAMES, **making.NAMES, **calls.NAMES, **elementwise.NAMES}
_METHODS = """
all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod
cumsum diagonal dot max mean min nonzero prod ptp repeat round searchsorted sort squeeze std sum
swapaxes take trace var
"""
_BINARY = """
add=add sub=subtract mul=multiply truediv=true_divide floordiv=floor_divide mod=remainder pow=power
divmod=divmod matmul=matmul and=bitwise_and or=bitwise_or xor=bitwise_xor lshift=left_shift
rshift=right_shift
"""
_COMPARE = "eq=equal ne=not_equal lt=less le=less_equal gt=greater ge=greater_equal"
_UNARY = "neg=negative pos=positive abs=abs invert=bitwise_not"
_PROPERTIES = "T=transpose mT=matrix_transpose real=real imag=imag size=size"
_TAKEN = (Array, np.ndarray, np.generic, *NUMBERS)


def _operator(fn: Callable, turned: bool) -> Callable:
    def run(self: Array, other: Any, modulo: None = None) -> Any:
        if not isinstance(other, _TAKEN) and not hasattr(other, "__jax_array__"):
            return NotImplemented
        return fn(other, self) if turned else fn(self, other)

    return run


def _method(name: str) -> Callable:
    fn = _FUNCTIONS[name]
    return lambda self, *args, **given: fn(self, *args, **given)


def _rows(text: str) -> list[tuple[str, str]]:
    return [row.partition("=")[::2] for row in text.split()]


_FOUND: dict[str, Any] = {name: _method(name) for name in _METHODS.split()}
for _op, _name in _rows(_BINARY):
    _FOUND[f"__{_op}__"] = _operator(_FUNCTIONS[_name], False)
    _FOUND[f"__r{_op}__"] = _operator(_FUNCTIONS[_name], True)
_FOUND |= {f"__{op}__": _operator(_FUNCTIONS[name], False) for op, name in _rows(_COMPARE)}
_FOUND |= {f"__{op}__": _method(name) for op, name in _rows(_UNARY)}
for _name, _fn in _FOUND.items():
    _fn.__name__, _fn.__doc__ = _name, f"``jax.numpy.{_name}`` of this array."


# --- forms --------------------------------------------------------------------------------------
def reshape(self: Array, *args: Any, order: str = "C", **how: Any) -> Array:
    """The same elements in another shape."""
    shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    return _FUNCTIONS["reshape"](self, shape, order)


def transpose(self: Array, *args: Any) -> Array:
    """The dimensions in another order."""
    axes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or None
    return _FUNCTIONS["transpose"](self, axes)


def flatten(self: Array, order: str = "C", **how: Any) -> Array:
    """All elements in one dimension."""
    return _FUNCTIONS["ravel"](self, order)


def view(self: Array, dtype: Any = None, type: Any = None) -> Array:  # noqa: A002
    """The same bytes as another type."""
    if dtype is None:
        return self
    kind = types.asked(dtype, "view")
    if self.dtype.kind == "b" or kind.kind == "b":
        return wrap(self._value.to(types.dtypes.uint8).view(types.dtypes.of(kind)), False)
    return wrap(self._value.view(types.dtypes.of(kind)), False)


def iterate(self: Array) -> Iterator[Array]:
    """What lies along the first dimension."""
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    return iter([wrap(v, self.weak_type) for v in self._value])


def contains(self: Array, item: Any) -> bool:
    """Whether an element is equal to ``item``."""
    if self.ndim != 1:
        raise ValueError(
            f"Array.__contains__: search array must be one-dimensional, got arr.shape={self.shape}."
        )
    return bool(_FUNCTIONS["any"](_FUNCTIONS["equal"](self, item)))


# --- Python's numbers ---------------------------------------------------------------------------
def _of_numbers(ask: Callable, error: Callable[[Any], Exception]) -> Callable:
    """A question to the numbers of an array; ``error`` of one that is traced."""

    def run(self: Array, *args: Any) -> Any:
        tracing.concrete(self, error)
        return ask(np.asarray(self), *args)

    return run


def _number(kind: type) -> Callable[[Array], Any]:
    return _of_numbers(lambda x: kind(protocols.single(x)), tracing.number(kind.__name__))


def text(self: Array) -> str:
    """The numbers, or what stages them."""
    traced = tracing.tracer_text(self, wrap)
    if traced is None and self.dtype.kind == "k":  # of keys, which have no numbers
        return repr(self)
    return str(np.asarray(self)[()]) if traced is None else traced


def written(self: Array, spec: str) -> str:
    """A number in a format."""
    if tracing.is_traced(self._value):
        return object.__format__(self, spec)
    if not spec and self.dtype.kind == "k":
        return repr(self)
    return format(np.asarray(self)[()], spec)


def unset(self: Array, key: Any, value: Any) -> None:
    """JAX's arrays are immutable."""
    raise TypeError(
        "JAX arrays are immutable and do not support in-place item assignment. Instead of x[idx] = "
        "y, use x = x.at[idx].set(y) or another .at[] method: https://docs.jax.dev/en/latest/_autosum"
        "mary/jax.numpy.ndarray.at.html"
    )


def unhashable(self: Array) -> int:
    """Arrays have no hash."""
    raise TypeError(f"unhashable type: '{type(self).__name__}'")


def _remade(array: np.ndarray, weak: bool) -> Array:
    out = making.asarray(array)
    out.weak_type = weak
    return out


def rounded(self: Array, ndigits: int | None = None) -> Array:
    """To so many decimals; to an integer with none given."""
    kind = self.dtype if ndigits is not None or self.dtype.kind in "iu" else int
    found: Array = _FUNCTIONS["astype"](_FUNCTIONS["round"](self, ndigits or 0), kind)
    return found


_FOUND |= {
    "reshape": reshape, "transpose": transpose, "flatten": flatten, "ravel": flatten, "view": view,
    "item": _of_numbers(protocols.item, tracing.method("item")),
    "tolist": _of_numbers(np.ndarray.tolist, tracing.method("tolist")),
    "__len__": lambda self: protocols.length(self.shape), "__iter__": iterate, "__str__": text,
    "__contains__": contains, "__getitem__": indexing.PARTS.reader(),
    "__setitem__": unset,
    "__bool__": _of_numbers(protocols.truth, errors.TracerBoolConversionError),
    "__index__": _of_numbers(protocols.index, errors.TracerIntegerConversionError),
    "__hash__": unhashable, "__round__": rounded,
    **{f"__{kind.__name__}__": _number(kind) for kind in (int, float, complex)},
    "__format__": written, "tobytes": lambda self, order="C": np.asarray(self).tobytes(order),
    "block_until_ready": lambda self: self, "copy_to_host_async": lambda self: None,
    "delete": lambda self: None, "is_deleted": lambda self: False, "is_ready": lambda self: True,
    "aval": property(lambda self: ShapedArray(self.shape, self.dtype, self.weak_type, None)),
    "__reduce__": lambda self: (_remade, (np.asarray(self), self.weak_type)),
    "__dlpack__": lambda self, **how: self._value.__dlpack__(**how),
    "__dlpack_device__": lambda self: self._value.__dlpack_device__(),
    "__copy__": making.copy, "__deepcopy__": lambda self, memo: making.copy(self),
    **{name: property(_FUNCTIONS[fn]) for name, fn in _rows(_PROPERTIES)},
    "at": property(indexing.PARTS.at), "flat": property(lambda self: iterate(flatten(self))),
    "itemsize": property(lambda self: self.dtype.itemsize),
    "nbytes": property(lambda self: self.dtype.itemsize * calls.size(self)),
}  # fmt: skip
for _name, _fn in _FOUND.items():
    setattr(Array, _name, _fn)
