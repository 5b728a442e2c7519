"""Graphs under TensorFlow's names: ``disttrain.graphs`` over its tensors, with its errors."""

from __future__ import annotations

from typing import Any

from ...graphs import Graph
from ...graphs import Operation as Line
from .errors import FAILURES, InvalidArgumentError, OpError
from .tensor import SymbolicTensor, convert, out_of_scope


class Operation(Line):
    """One line of a graph."""

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"

    @property
    def node_def(self) -> str:
        return f'name: "{self.name}"\nop: "{self.type}"\n' + "".join(
            f'input: "{name}"\n' for name in self.input
        )

    input = property(lambda self: [t.name.removesuffix(":0") for t in self.inputs])


class FuncGraph(Graph):
    """The operations of a traced function."""

    symbol, operation, failures = SymbolicTensor, Operation, (*FAILURES, OpError)

    as_default = lambda self: self  # noqa: E731
    out_of_scope = staticmethod(out_of_scope)  # type: ignore[assignment]

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

    get_operation_by_name, get_tensor_by_name = Graph.operation_named, Graph.symbol_named
    get_operations = lambda self: list(self.operations)  # noqa: E731

    def as_graph_def(self, add_shapes: bool = False) -> GraphDef:
        """The operations as text in TensorFlow's form, with names, kinds and inputs."""
        return GraphDef(self.operations)


class GraphDef:
    """The list of nodes of a graph, as text."""

    def __init__(self, operations: list[Operation]) -> None:
        self.node = [_Node(op) for op in operations]

    def __str__(self) -> str:
        inner = ["".join(f"  {line}\n" for line in n.op_def.splitlines()) for n in self.node]
        return "".join(f"node {{\n{text}}}\n" for text in inner)

    __repr__ = __str__


class _Node:
    def __init__(self, op: Operation) -> None:
        self.name, self.op, self.op_def, self.input = op.name, op.type, op.node_def, op.input
