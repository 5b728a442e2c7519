"""AutoGraph's border: which values are TensorFlow's, and the operations that stand for
statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...compile.autograph import Border, Statements
from . import arrays, control, math
from .tensor import GRAPH, SymbolicTensor, convert, is_tensor


class _Tensors(Border):
    def is_staged(self, value: Any) -> bool:
        if isinstance(value, SymbolicTensor):
            return True
        return GRAPH.get() is not None and is_tensor(value) and not isinstance(value, np.ndarray)

    def is_value(self, value: Any) -> bool:
        return is_tensor(value)

    def value(self, value: Any) -> Any:
        return value if is_tensor(value) else convert(value)

    def kind(self, value: Any) -> str:
        return self.value(value).dtype.name

    def is_sequence(self, value: Any) -> bool:
        return self.is_staged(value) or (GRAPH.get() is not None and hasattr(value, "element_spec"))

    def begin(self, body: Callable) -> Any:
        graph = control.FuncGraph("branch", GRAPH.get())
        with graph:
            body()
        return graph

    def finish(self, program: Any, values: list) -> Any:
        with program:
            program.finish([convert(v) for v in tree.leaves(values)])
        return program

    def choose(self, test: Any, programs: list, rebuild: Callable) -> Any:
        return control.branch("StatelessIf", control.flipped(convert(test)), programs, rebuild)

    def cond(self, test: Any, yes: Callable, no: Callable) -> Any:
        return control.cond(convert(test), yes, no)

    def blank(self, value: Any) -> Any:
        return convert(dt.zeros(value.shape.as_list(), dtype=value.dtype.inner)) if isinstance(
            value, SymbolicTensor) else convert(value)  # fmt: skip

    def element(self, over: Any) -> Any:
        return control.first_of(over)

    def while_loop(self, test: Callable, body: Callable, values: list, names: list) -> list:
        return control.staged_while(lambda *v: self.value(test(*v)), body, values, names=names)

    def for_loop(
        self, over: Any, body: Callable, values: list, names: list, go_on: Callable | None
    ) -> list:
        more = None if go_on is None else (lambda *v: self.value(go_on(*v)))
        return control.staged_for(self.value(over) if is_tensor(over) else over, body, values,
            names,
                                  more)  # fmt: skip

    def logical(self, word: str, *values: Any) -> Any:
        return math.NAMES[f"logical_{word}"](*values)

    def check(self, test: Any, message: Any) -> None:
        FROM_DEBUGGING["Assert"](test, [message])


FROM_DEBUGGING: dict[str, Any] = {}  # what ``toplevel`` has, which is made above


def _range(*limits: Any) -> Any:
    return arrays.range(*limits) if any(map(is_tensor, limits)) else range(*limits)


def _len(value: Any) -> Any:
    if isinstance(value, SymbolicTensor):
        known = value.shape[0] if value.shape.rank else None
        return arrays.shape(value)[0] if known is None else known
    return len(value)


def _number(kind: type, name: str) -> Callable:
    return lambda *a: math.cast(a[0], name) if a and isinstance(a[0], SymbolicTensor) else kind(*a)


def _enumerate(values: Any, start: int = 0) -> Any:
    staged = isinstance(values, SymbolicTensor)
    return enumerate(arrays.unstack(values) if staged else values, start)


_Tensors.builtins = {
    range: _range, len: _len, int: _number(int, "int32"), float: _number(float, "float32"),
    enumerate: _enumerate,
}  # fmt: skip
STATEMENTS = Statements(_Tensors())
