"""The operators of tensors and variables: a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import disttrain as dt

from . import math
from .dispatch import OPERATORS, matched
from .tensor import Tensor

_names = math.NAMES


def _logic(word: str) -> Callable:
    def fn(x: Any, y: Any) -> Any:
        x, y = matched(f"logical_{word}", [x, y])
        bools = x.dtype.is_bool
        return (_names[f"logical_{word}"] if bools else math.BITS[f"bitwise_{word}"])(x, y)

    return fn


_ADD = math.binary("add", "AddV2", dt.add, None, True)
# Python's word -> what computes it, and the name of its operation in graphs.
_BINARY: dict[str, tuple[Callable, str | None]] = {
    "add": (_ADD, "add"), "sub": (_names["subtract"], "sub"), "mul": (_names["multiply"], "mul"),
    "truediv": (math.divide, "truediv"), "floordiv": (_names["floordiv"], "floordiv"),
    "mod": (_names["floormod"], "FloorMod"), "pow": (_names["pow"], "pow"),
    "matmul": (math.matmul, "matmul"), **{w: (_logic(w), None) for w in ("and", "or", "xor")},
    **{w: (_names[name], None) for w, name in (
        ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"))},
}  # fmt: skip
_UNARY = {"neg": _names["negative"], "abs": _names["abs"], "invert": lambda x: (
    _names["logical_not"] if x.dtype.is_bool else math.BITS["invert"])(x)}  # fmt: skip


def attach(kind: Any) -> None:
    """Give ``kind`` the operators and subscripts."""
    OPERATORS.attach(kind, _BINARY, _UNARY, _names["equal"], _names["not_equal"])


attach(Tensor)
