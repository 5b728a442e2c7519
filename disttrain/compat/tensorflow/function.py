"""``tf.function``: a Python function traced once for each kind of arguments, then run as a graph
(``disttrain.graphs``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import graphs
from ...graphs.tapes import records, settled
from ...trace import warn
from .control import STATEMENTS
from .graph import FuncGraph
from .tensor import convert, is_tensor, wrap
from .types import TensorSpec

_RETRACED = (
    "{0} out of the last {0} calls to {1!r} triggered tf.function retracing. Tracing is expensive "
    "and the excessive number of tracings could be due to (1) creating @tf.function repeatedly in "
    "a loop, (2) passing tensors with different shapes, (3) passing Python objects instead of "
    "tensors. For (1), please define your @tf.function outside of the loop. For (2), @tf.function "
    "has reduce_retracing=True option that can avoid unnecessary retracing. For (3), please refer "
    "to https://www.tensorflow.org/guide/function#controlling_retracing and "
    "https://www.tensorflow.org/api_docs/python/tf/function for  more details."
)


class ConcreteFunction(graphs.Trace):
    """One trace: a graph, and the structures of what it takes and gives."""

    kind, spec = "StatefulPartitionedCall", TensorSpec

    def __init__(self, name: str, *parts: Any) -> None:
        super().__init__(f"__inference_{name}", *parts)
        self.name: Any = self.name.encode()

    def records(self) -> bool:
        return self.taped or records()

    def tensor(self, value: Any, wanted: Any) -> Any:
        return convert(value, wanted.dtype)

    def result(self, value: Any) -> Any:
        return wrap(settled(value))

    def pretty_printed_signature(self, verbose: bool = True) -> str:
        """Its parameters and results, as text."""
        return self.described("TensorSpec(shape=(), dtype=tf.resource, name=None)")

    def __str__(self) -> str:
        return f"ConcreteFunction {self.pretty_printed_signature()}"

    def __repr__(self) -> str:
        takes = ", ".join(f"{n}: {self.told(v)}" for n, v in self.bound.items())
        gives = self.told(self.structured_outputs)
        return f"<ConcreteFunction ({takes}) -> {gives} at {id(self):#X}>"


class Function(graphs.Function):
    """A function that is traced when it is called with arguments of a new kind."""

    graph, trace, spec = FuncGraph, ConcreteFunction, TensorSpec
    again = (
        "tf.function only supports singleton tf.Variables created on the first call. Make sure the "
        "tf.Variable is only created once or created outside tf.function. See "
        "https://www.tensorflow.org/guide/function#creating_tfvariables for more information."
    )

    def is_tensor(self, value: Any) -> bool:
        return is_tensor(value) and hasattr(value, "_value") and not hasattr(value, "assign")

    def tensor(self, value: Any, spec: Any = None) -> Any:
        return convert(value, hint=None if spec is None else spec.dtype)

    def is_result(self, value: Any) -> bool:
        plain = (int, float, complex, str, bytes, np.ndarray, np.generic)
        return is_tensor(value) or isinstance(value, plain)

    def misfit(self, why: str, args: tuple, kwargs: dict) -> str:
        names, specs = list(self._signature.parameters), self.input_signature
        takes = [f"{n}: {s!r}" for n, s in zip(names, specs, strict=False)] if specs else names
        return (f"Binding inputs to tf.function failed due to `{why}`. Received args: {args} and "
                f"kwargs: {kwargs} for signature: ({', '.join(takes)}).")  # fmt: skip

    def tell(self, count: int) -> None:
        warn(_RETRACED.format(count, self))

    get_concrete_function: Any = graphs.Function.trace_of

    def experimental_get_tracing_count(self) -> int:
        """How often it was traced."""
        return self.count

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """What its traces take and give, as text."""
        return "\n\n".join(str(t).partition(" ")[2] for t in self.traces)

    def __repr__(self) -> str:
        return f"<tensorflow.python.eager.polymorphic_function.Function object at {id(self):#x}>"


def function(
    func: Callable | None = None, input_signature: Any = None, autograph: bool = True,
    jit_compile: Any = None, reduce_retracing: bool = False, experimental_implements: Any = None,
    experimental_autograph_options: Any = None, experimental_attributes: Any = None,
    experimental_relax_shapes: Any = None, experimental_compile: Any = None,
    experimental_follow_type_hints: Any = None,
) -> Any:  # fmt: skip
    """Trace ``func`` into a graph at its first call, and for each new kind of arguments."""
    relaxed = reduce_retracing or bool(experimental_relax_shapes)

    def made(fn: Callable) -> Function:
        return Function(fn, None, input_signature, relaxed, STATEMENTS if autograph else None)

    return made if func is None else made(func)
