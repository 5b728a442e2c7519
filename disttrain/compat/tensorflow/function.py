"""``tf.function``: a Python function traced once for each kind of arguments, then run as a graph
(``disttrain.graphs``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import graphs
from ...graphs.tapes import records, settled
from ...trace import warn
from ..tables import passing
from .control import STATEMENTS
from .graph import FuncGraph
from .tensor import EagerTensor, convert, is_tensor, wrap
from .types import TensorSpec
from .variable import Variable

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

    records = lambda self: self.graph.taped or records()  # noqa: E731
    tensor = lambda self, value, wanted: convert(value, wanted.dtype)  # noqa: E731
    result = lambda self, value: wrap(settled(value))  # noqa: E731

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
        return is_tensor(value) and hasattr(value, "_value") and not isinstance(value, Variable)

    def tensor(self, value: Any, spec: Any = None) -> Any:
        return convert(value, hint=None if spec is None else spec.dtype)

    def meta(self, value: Any) -> Any:
        return super().meta(value._value) if value.__class__ is EagerTensor else None

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
    experimental_get_tracing_count = lambda self: self.count  # noqa: E731
    pretty_printed_concrete_signatures = lambda self, verbose=True: "\n\n".join(  # noqa: E731
        t.pretty_printed_signature() for t in self.traces)  # fmt: skip

    def __repr__(self) -> str:
        return f"<tensorflow.python.eager.polymorphic_function.Function object at {id(self):#x}>"


def _made(fn: Any, signature: Any, autograph: bool, relaxed: bool, relax: Any) -> Any:
    """Trace a function into a graph at its first call, and for each new kind of arguments."""
    how = signature, relaxed or bool(relax), STATEMENTS if autograph else None
    return (lambda f: Function(f, None, *how)) if fn is None else Function(fn, None, *how)


function = passing("function", "func=None input_signature=None autograph=True _jit_compile=None "
                   "reduce_retracing=False _experimental_implements=None "
                   "_experimental_autograph_options=None _experimental_attributes=None "
                   "experimental_relax_shapes=None _experimental_compile=None "
                   "_experimental_follow_type_hints=None", _made)  # fmt: skip
