"""Graphs under TensorFlow's names: ``disttrain.graphs`` over its tensors, with its errors."""

from __future__ import annotations

from typing import Any

from ...graphs import Graph
from ...graphs import Operation as Line
from .errors import FAILURES, InvalidArgumentError, OpError
from .tensor import SymbolicTensor, convert, out_of_scope


class Operation(Line):
    """One line of a graph."""

    input, node_def = Line.input_names, property(Line.described)

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"


class FuncGraph(Graph):
    """The operations of a traced function."""

    symbol, operation, failures = SymbolicTensor, Operation, (*FAILURES, OpError)
    out_of_scope = staticmethod(out_of_scope)  # type: ignore[assignment]
    get_operation_by_name, get_tensor_by_name = Graph.operation_named, Graph.symbol_named
    get_operations = lambda self: list(self.operations)  # noqa: E731
    as_graph_def = lambda self, add_shapes=False: self.listing()  # noqa: E731
    as_default = lambda self: self  # noqa: E731

    def value_of(self, value: Any) -> Any:
        return convert(value)._value

    def inside(self, t: Any, name: str = "Const") -> Any:
        return super().inside(convert(t), name)

    def failed(self, op: Any, error: BaseException) -> BaseException:
        if str(error).startswith("Graph execution error"):
            return error
        kind: Any = type(error) if isinstance(error, OpError) else InvalidArgumentError
        return kind(
            None, None, f"Graph execution error:\n\nDetected at node {op.name} of {self.name}:\n\n"
            f"{error}\n\t [[{{{{node {op.name}}}}}]] [Op:__inference_{self.name}]",
        )  # fmt: skip
