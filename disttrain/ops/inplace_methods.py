"""The in-place methods of Tensor: every function that has one, under its name with an underscore.

A table, not code: what an in-place operation is stands in ``functions/inplace.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.gate import Tracer
from ..core.tensor import Tensor, wrap
from ..core.types.memory_format import preserve_format
from ..core.writes import check_captured, check_inplace, touched
from ..errors import DTypeError
from . import api
from .functions import elementwise as math
from .functions import inplace, sampling, special
from .functions.index_arrays import index_put
from .functions.views import memory_formats
from .functions.views import shapes as shape

_SAME = """acos acosh addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin
arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip
conj_physical copysign cos cosh cumprod cumsum deg2rad digamma eq erf erfc erfinv exp exp2 expm1 fix
float_power floor floor_divide fmod frac gcd ge greater greater_equal gt heaviside hypot i0 igamma
igammac index_add index_copy index_fill index_reduce lcm ldexp le lerp less less_equal lgamma log
log10 log1p log2 logical_and logical_not logical_or logical_xor logit lt masked_fill masked_scatter
mvlgamma nan_to_num ne neg negative nextafter not_equal polygamma put rad2deg reciprocal relu
remainder renorm round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt
square tan tanh tril triu trunc xlogy"""
# Of which numpy's own have the bits of ours, in every floating type.
_UFUNCS = {"sqrt": np.sqrt, "neg": np.negative, "sin": np.sin, "cos": np.cos, "floor": np.floor,
           "ceil": np.ceil, "square": np.square}  # fmt: skip

_CLASS: Any = Tensor  # (its stub says what methods it has; here it gets them)


def _div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    return math.div(input, other, rounding_mode=rounding_mode)


def _pow(self: Tensor, exponent: Tensor | complex | float) -> Tensor:
    return math.pow(self, exponent)


def _size(self: Tensor) -> Tensor:
    if self.dtype.is_complex:
        raise DTypeError("abs_: In-place abs is not supported for complex tensors.")
    shape.check.kinds("abs_", "iufV", self)
    return math.abs(self)


def _put_indexed(self: Tensor, indices: tuple, values: Tensor, accumulate: bool = False) -> Tensor:
    return index_put(self, tuple(indices), values, accumulate)


def _applied(self: Tensor, fn: Callable, *others: Tensor) -> Tensor:
    sides = [shape.broadcast_to(o.detach(), self.shape).array for o in others]
    rows = zip(self.array.ravel().tolist(), *(s.ravel().tolist() for s in sides), strict=True)
    found = [fn(*row) for row in rows]
    for value in found:
        if not isinstance(value, (int, float, complex, np.generic, Tensor)):
            raise TypeError(f"apply_: a number is needed, {type(value).__name__} returned")
    values = np.array(found, self.array.dtype)
    return wrap(values.reshape(self.array.shape))


def apply_(self: Tensor, fn: Callable[[float], float]) -> Tensor:
    """Apply a Python function to every element, in place (slow)."""
    return inplace.copy_(self, _applied(self.detach(), fn))


def map_(self: Tensor, other: Tensor, fn: Callable[[float, float], float]) -> Tensor:
    """Write ``fn(own element, other's element)`` to every element (slow)."""
    return inplace.copy_(self, _applied(self.detach(), fn, other))


def map2_(self: Tensor, x: Tensor, y: Tensor, fn: Callable) -> Tensor:
    """As ``map_``, with two other tensors."""
    return inplace.copy_(self, _applied(self.detach(), fn, x, y))


def resize_as_(self: Tensor, other: Tensor, *, memory_format: Any = None) -> Tensor:
    """``resize_`` to the shape of ``other``, in the order of ``memory_format``, or in that of
    ``other`` (``preserve_format``)."""
    if memory_format is preserve_format:
        memory_format = memory_formats.suggest(other)
    return self.resize_(*other.shape, memory_format=memory_format)


# --- another shape -----------------------------------------------------------------------------
def _reshaped(name: str, fn: Callable) -> Callable:
    """``unsqueeze_`` and its kin: the tensor becomes a view of what it was."""

    def run(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        check_captured(self, name)
        self.forget_hidden_base()
        if inplace.records(self):
            check_inplace(self, name)
        aliased = self._st is not None
        out = fn(self, *args, **kwargs)
        if out is self:
            return self
        node, seen = out.graph_node(), self._view is not None or aliased
        if isinstance(self, Tracer):
            self._view = (self.leave_behind(), *out._view[1:])
            self.become(out, node)
            return self
        touched(self)  # a gradient that needs the old shape must not read the new one
        if seen and out._view is not None:
            self._view = (self.leave_behind(), *out._view[1:])
        self.array, self._node = out.array, node
        return self

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"``{name.rstrip('_')}``, of this tensor object itself."
    return run


_SHAPED = "squeeze swapaxes swapdims t transpose unsqueeze".split()


def attach(**methods: object) -> None:
    """Give Tensor methods and properties by name. Type checkers find them in the stub."""
    for name, method in methods.items():
        setattr(Tensor, name, method)


def install() -> None:
    """Give Tensor its in-place methods."""
    for name in _SAME.split():
        fn = getattr(api, name, None) or getattr(Tensor, name)
        if name == "polygamma":
            fn = _polygamma
        method = inplace.inplace(f"{name}_", fn, _UFUNCS.get(name))
        setattr(Tensor, f"{name}_", method)
    for name in _SHAPED:
        setattr(Tensor, f"{name}_", _reshaped(f"{name}_", getattr(shape, name, None) or
                                              getattr(api, name)))  # fmt: skip
    for name in ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_",
                 "geometric_", "log_normal_"):  # fmt: skip
        setattr(Tensor, name, getattr(sampling, name))
    divided = inplace.inplace("div_", _div, np.true_divide)
    absolute = inplace.inplace("abs_", _size, np.absolute)
    attach(
        as_strided_=_reshaped("as_strided_", api.as_strided),
        copy_=inplace.copy_,
        fill_=inplace.fill_,
        zero_=inplace.zero_,
        add_=inplace.add_,
        sub_=inplace.sub_,
        mul_=inplace.mul_,
        multiply_=inplace.mul_,
        subtract_=inplace.sub_,
        div_=divided,
        divide_=divided,
        true_divide_=divided,
        abs_=absolute,
        absolute_=absolute,
        pow_=inplace.inplace("pow_", _pow),
        index_put_=inplace.inplace("index_put_", _put_indexed),
        fill_diagonal_=inplace.inplace("fill_diagonal_", _fill_diagonal),
        apply_=apply_,
        map_=map_,
        map2_=map2_,
        resize_as_=resize_as_,
    )
    _operators()


def _polygamma(self: Tensor, n: int) -> Tensor:
    return special.polygamma(n, self)


def _fill_diagonal(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    return special.filled_diagonal(self, fill_value, wrap)


def _operators() -> None:
    attach(
        __iadd__=Tensor.add_,
        __isub__=Tensor.sub_,
        __imul__=Tensor.mul_,
        __itruediv__=Tensor.div_,
        __ipow__=Tensor.pow_,
        __ifloordiv__=Tensor.floor_divide_,
        __imod__=Tensor.remainder_,
        __iand__=Tensor.bitwise_and_,
        __ior__=Tensor.bitwise_or_,
        __ixor__=Tensor.bitwise_xor_,
        __ilshift__=Tensor.bitwise_left_shift_,
        __irshift__=Tensor.bitwise_right_shift_,
    )
