"""Programs in JAX's text form: the names of lax's primitives and of their parameters, over
``func.trees.listing``. What lax has not goes by its own name here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...func.trees.listing import ArrayType, Equation, Listing, Style, Variable
from ...func.trees.listing import Literal as _Literal

Jaxpr = Listing
_NOWHERE = SimpleNamespace(
    mesh=SimpleNamespace(empty=True, are_all_axes_explicit=False, axis_names=()), spec=()
)


class ShapedArray(NamedTuple):
    """A shape and a type."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False
    sharding: Any = _NOWHERE  # that of an empty mesh: types say nothing of layouts here

    def str_short(self) -> str:
        """f32[2,3]"""
        return ArrayType(*self[:3]).str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.dtype.name}[{','.join(map(str, self.shape))}]{weak})"


class Var(Variable):
    """A value of a program."""

    aval = property(lambda self: self.type)


class Literal(_Literal):
    """A number in a program."""

    aval = property(lambda self: self.type)


class ClosedJaxpr:
    """A program with its constants."""

    def __init__(self, jaxpr: Jaxpr, consts: list[Any]) -> None:
        self.jaxpr, self.consts = jaxpr, consts

    literals = property(lambda self: self.consts)
    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    in_avals = property(lambda self: [v.aval for v in self.jaxpr.invars])
    out_avals = property(lambda self: [v.aval for v in self.jaxpr.outvars])

    def __repr__(self) -> str:
        return repr(self.jaxpr)


_NAMES = {
    "held": "stop_gradient", "where": "select_n", "matmul": "dot_general", "permute": "transpose",
    "expand": "broadcast_in_dim", "cast": "convert_element_type", "cat": "concatenate",
    "sum": "reduce_sum", "amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod",
    "negate": "neg", "true_divide": "div", "sigmoid": "logistic", "absolute": "abs",
    "flip": "rev", "logical_not": "not", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "bitwise_not": "not", "maximum": "max", "minimum": "min",
    "all": "reduce_and", "any": "reduce_or", "argmax": "argmax", "erfinv": "erf_inv",
}  # fmt: skip


def _axes(p: dict) -> dict:
    return {"axes": tuple(p.get("dims") or ())}


def _dot(p: dict, ins: list, outs: list) -> dict:
    a, b = (v.type.shape for v in ins[:2])
    batch = list(range(min(len(a), len(b)) - 2))
    left, right = [len(a) - 1], [max(len(b) - 2, 0)]
    return {
        "dimension_numbers": f"(({left}, {right}), ({batch}, {batch}))",
        "preferred_element_type": outs[0].type.dtype.name,
    }


_PARAMS: dict[str, Callable[[dict, list, list], dict]] = {
    "dot_general": _dot,
    "reduce_sum": lambda p, ins, outs: {**_axes(p), "out_sharding": None},
    "reduce_max": lambda p, ins, outs: _axes(p),
    "reduce_min": lambda p, ins, outs: _axes(p),
    "reshape": lambda p, ins, outs: {
        "dimensions": None, "new_sizes": outs[0].type.shape, "sharding": None},
    "transpose": lambda p, ins, outs: {
        "permutation": tuple(p.get("dims") or range(len(ins[0].type.shape))[::-1])},
    "broadcast_in_dim": lambda p, ins, outs: (
        {} if not ins[0].type.shape else {
            "broadcast_dimensions": tuple(range(len(outs[0].type.shape)))[
                len(outs[0].type.shape) - len(ins[0].type.shape):],
            "shape": outs[0].type.shape, "sharding": None}),
    "convert_element_type": lambda p, ins, outs: {
        "new_dtype": outs[0].type.dtype.name, "weak_type": False},
    "concatenate": lambda p, ins, outs: {"dimension": p.get("dim", 0)},
}  # fmt: skip


STYLE = Style(_NAMES, _PARAMS, "jaxpr", ShapedArray, Var, Literal)
__all__ = ["ClosedJaxpr", "Equation", "Jaxpr", "Literal", "ShapedArray", "Var"]
