"""Which operations sparse tensors have, by the names of primitives: a row for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....context import thread
from ....core.gate import Primitive
from ....core.tensor import Tensor
from ....core.types.casting import casting
from ....errors import LayoutError, ShapeError
from ...declare import REGISTRY
from ...primitives import elementwise as el
from ...primitives.reduce import any_
from ...primitives.views import permute
from ...primitives.write import assign
from . import along, arithmetic, products
from .coo import SparseTensor
from .structured import Structured, cast

# Functions of one tensor that leave zero where it is: computed of the values. Of these, the first
# ones also of values whose places are named several times.
_LINEAR = "neg conj real imag clone to_copy"
_ZERO = """abs sign sgn sqrt sin tan asin atan sinh tanh asinh atanh expm1 log1p erf erfinv floor
ceil round trunc relu isnan isinf signbit square"""


def _of_values(prim: Primitive, linear: bool) -> Callable:
    def run(x: Any, **params: Any) -> Any:
        one = x if linear or not isinstance(x, SparseTensor) else x.coalesce()
        return one.with_values(prim(one._held, **params))

    return run


def _power(x: Any, exponent: Any) -> Any:
    if isinstance(exponent, Tensor) or not isinstance(x, Structured):
        raise LayoutError("pow: only a sparse tensor to the power of a number is known")
    if exponent == 0:
        raise ShapeError("pow: a sparse tensor to the power of 0 would be 1 everywhere")
    one = x.coalesce() if isinstance(x, SparseTensor) else x
    return one.with_values(el.pow_(one._held, exponent))


def _linear(x: Any, w: Any, b: Any = None) -> Any:
    out = products.matmul(x, permute(w, dims=(1, 0)))
    return out if b is None else out + b


def _any(x: Any, dims: tuple, keepdim: bool) -> Any:
    if len(dims) != x.ndim or keepdim:
        raise LayoutError("any: of a sparse tensor only over all dimensions")
    return any_(x._held, dims=tuple(range(x._held.ndim)), keepdim=False)


def _divided(name: str) -> Callable:
    def run(a: Any, b: Any) -> Any:
        if not isinstance(a, Structured):
            raise _missing("reciprocal")
        return arithmetic.div(a, b, REGISTRY[name])

    return run


def _assign(target: Any, value: Any) -> Any:
    """Write to memory: of a dense tensor the dense one, of a sparse one its places and values."""
    if isinstance(target, Structured):
        return target.copy_(value)
    return assign(target, value.to_dense())


def _refused(message: str) -> Callable:
    def run(*args: object, **params: object) -> Any:
        raise ShapeError(message)

    return run


_COMPOSED: dict[str, Callable] = {
    "assign": _assign,
    "matmul": products.matmul,
    "linear": _linear,
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "mul": arithmetic.mul,
    "pow": _power,
    "sum": along.total,
    "any": _any,
    "cast": cast,
    "permute": along.turned,
    "reshape": along.reshaped,
    "expand": _refused("expand is unsupported for Sparse tensors"),
    "take": along.chosen,
    "getitem": along.part,
    **{name: _divided(name) for name in ("div", "floor_divide", "truncate_divide")},
    **{name: _of_values(REGISTRY[name], True) for name in _LINEAR.split()},
    **{name: _of_values(REGISTRY[name], False) for name in _ZERO.split()},
}


def _missing(name: str, layout: str = "SparseCPU") -> LayoutError:
    return LayoutError(
        f"Could not run 'aten::{name.strip('_')}' with arguments from the '{layout}' backend: this "
        "operation is not defined for sparse tensors; use to_dense() first"
    )


def compose(prim: Primitive, args: tuple, params: dict) -> Any:
    """``prim(*args, **params)``, where one of ``args`` is sparse."""
    if prim.name == "cat":
        return along.together(args, params["dim"])
    found = _COMPOSED.get(prim.name)
    if found is None:
        first = next(a for a in args if isinstance(a, Structured))
        csr = first.layout != "sparse_coo"
        raise _missing(prim.name, "SparseCsrCPU" if csr else "SparseCPU")
    known = {k: v for k, v in params.items() if k != "skip"}
    chooser = thread.autocast
    if chooser is None:
        return found(*args, **known)
    with casting(None):  # what it is composed of computes in the types of this one operation
        return found(*chooser.cast(prim, args), **known)
