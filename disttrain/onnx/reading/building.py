"""A model's message as a ``Graph``: names resolved, functions put in place of the nodes that call
them, operators found in the table, attributes decoded. What is damaged or missing is named here."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueInfoProto,
)

from ...core.types.dtypes import dtype
from ...errors import OperatorError, SerializationError
from . import operators as _rows  # fills the table
from .elements import NARROW, array_of
from .graph import Graph, Limits, Port, Step, finish
from .table import ML, PREVIEW, TRAINING, Call, Operator, find

_STANDARD = {"", ML, TRAINING, PREVIEW}
_OLDEST = 7
Versions = dict[str, int]


class Scope:
    """Names of a graph or a function: of what they stand for in the model as a whole."""

    def __init__(self, outer: Scope | None, prefix: str = "") -> None:
        self.outer, self.prefix = outer, prefix
        self.names: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        """The value that ``name`` means here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


def build(model: ModelProto, limits: Limits, source: str) -> Graph:
    """The graph of ``model``, which ``source`` names in errors."""
    builder = Builder(model, limits, source)
    graph = builder.graph(model.graph, Scope(None), builder.versions, 0)
    graph.types = builder.types
    finish(graph)
    return graph


class Builder:
    """What one model's nodes are built with."""

    def __init__(self, model: ModelProto, limits: Limits, source: str) -> None:
        self.limits, self.source, self.count = limits, source, 0
        self.taken: set[str] = set()
        self.copies: Counter[str] = Counter()  # names that were there already, how often
        self.sizes: dict[int, int] = {}  # nodes that functions become, by identity
        self.types: dict[dtype, dtype] = {}
        self.narrow: dict[str, int] = {}  # types of fewer than 8 bits, by values
        self.versions = _versions(model.opset_import, source)
        self.functions: dict[tuple[str, str, str], FunctionProto] = {}
        for f in model.functions:
            key = (_domain(f.domain), f.name, f.overload)
            if key in self.functions:
                raise SerializationError(f"{source}: two functions {f.domain}.{f.name}")
            self.functions[key] = f

    # --- graphs -----------------------------------------------------------------------------
    def graph(self, g: GraphProto, scope: Scope, versions: Versions, depth: int) -> Graph:
        """A graph, with the names that ``scope`` has around it."""
        self._check_depth(depth, g.name)
        out = Graph(g.name)
        if g.sparse_initializer:
            raise OperatorError(f"{self.source}: sparse initializers in graph {g.name!r}")
        for tensor in g.initializer:
            name = self.define(scope, tensor.name, "initializer")
            out.constants[name] = self._array(tensor, f"initializer {tensor.name!r}")
            self._note(name, tensor.data_type)
        preset = set(scope.names)  # whose initializers are what they are usually
        for value in g.input:
            if value.name in preset:
                preset.discard(value.name)
            else:
                self.define(scope, value.name, "input")
            port = _port(value, scope.names[value.name])
            out.inputs.append(port)
            self._note(port.name, port.kind or 0)
        for node in g.node:
            self.node(node, scope, versions, out, depth)
        for value in g.output:
            found = scope.find(value.name)
            if found is None:
                raise SerializationError(
                    f"{self.source}: result {value.name!r} of graph {g.name!r} is made by no node"
                )
            out.outputs.append(_port(value, found))
        return out

    def define(self, scope: Scope, name: str, what: str) -> str:
        """A new name in ``scope``, and the one that its value has in the model."""
        if not name:
            raise SerializationError(f"{self.source}: an {what} without a name")
        if name in scope.names:
            raise SerializationError(f"{self.source}: {what} {name!r} is there twice")
        own = base = f"{scope.prefix}{name}"
        while own in self.taken:
            self.copies[base] += 1
            own = f"{base}'" if self.copies[base] == 1 else f"{base}'{self.copies[base]}"
        self.taken.add(own)
        scope.names[name] = own
        return own

    def _note(self, name: str, kind: int) -> None:
        if kind in NARROW:
            self.narrow[name] = kind

    def _array(self, tensor: onnx.TensorProto, what: str) -> Any:
        return array_of(tensor, self.limits.bytes, f"{self.source}: {what}")

    def _check_depth(self, depth: int, name: str) -> None:
        if depth > self.limits.depth:
            raise SerializationError(
                f"{self.source}: {name!r} lies more than {self.limits.depth} graphs or functions "
                "deep; functions that call themselves have no end"
            )

    def _check_count(self, more: int) -> None:
        if self.count + more > self.limits.nodes:
            raise SerializationError(
                f"{self.source}: more than {self.limits.nodes} nodes, those of functions counted "
                "as often as they are called (load(..., limits=Limits(nodes=...)))"
            )

    def _size(self, nodes: Iterable[NodeProto], depth: int) -> int:
        """How many nodes there are with functions opened: known before any is built."""
        total = 0
        for node in nodes:
            total += 1
            function = self.functions.get((_domain(node.domain), node.op_type, node.overload))
            if function is not None and depth <= self.limits.depth:
                size = self.sizes.get(id(function))
                if size is None:
                    self.sizes[id(function)] = 0  # one that calls itself is told by its depth
                    size = self.sizes[id(function)] = self._size(function.node, depth + 1)
                total += size
            for a in node.attribute:
                if a.type == AttributeProto.GRAPH and depth <= self.limits.depth:
                    total += self._size(a.g.node, depth + 1)
        return total

    # --- nodes ------------------------------------------------------------------------------
    def node(
        self, node: NodeProto, scope: Scope, versions: Versions, out: Graph, depth: int
    ) -> None:
        """The steps of a node: one, or those of the function that it calls."""
        self.count += 1
        self._check_count(0)
        domain = _domain(node.domain)
        function = self.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            self.inline(node, function, scope, out, depth)
            return
        version = versions.get(domain)
        where = self._where(node, domain, version)
        if version is None:
            raise SerializationError(
                f"{where}: the model imports no version of domain {domain or 'ai.onnx'!r}"
            )
        row, schema = find(domain, node.op_type, version), _schema(domain, node.op_type, version)
        if row is None or not all(row.accepts(a.name) for a in node.attribute):
            function = _body(schema, node, version)
            if function is not None:
                self.inline(node, function, scope, out, depth, schema)
                return
        if row is None:
            raise OperatorError(f"{where}: no such operator here; {_near(schema, domain)}")
        _check_node(node, schema, where)
        self.step(node, row, scope, out, where, version, depth, versions)

    def _where(self, node: NodeProto, domain: str, version: int | None) -> str:
        name = node.name or (node.output[0] if node.output else "")
        operator = f"{domain or 'ai.onnx'}.{node.op_type}"
        return f"{self.source}: node {name!r} ({operator}, version {version})"

    def step(
        self, node: NodeProto, row: Operator, scope: Scope, out: Graph, where: str, version: int,
        depth: int, versions: Versions,
    ) -> None:  # fmt: skip
        """One step, for the row of a node's operator."""
        inputs = tuple(self._found(scope, n, where) if n else "" for n in node.input)
        attributes, graphs = {}, {}
        for a in node.attribute:
            if not row.accepts(a.name):
                raise OperatorError(f"{where}: attribute {a.name!r} is not known here")
            if a.type == AttributeProto.GRAPH:
                inner = Scope(scope, f"{scope.prefix}{node.name or node.op_type}/")
                graphs[a.name] = self.graph(a.g, inner, versions, depth + 1)
            else:
                attributes[a.name] = self._attribute(a, where)
        outputs = tuple(self.define(scope, n, "value") if n else "" for n in node.output)
        if node.op_type == "Constant" and not node.domain:
            self._literal(out, outputs, attributes, where)
            return
        narrow = tuple(self.narrow.get(n, 0) for n in inputs)
        call = Call(len(outputs), version, self.limits, narrow, self.types)
        if node.op_type in ("Cast", "QuantizeLinear"):
            given = attributes.get("to") or attributes.get("output_dtype")
            self._note(outputs[0], given or call.narrow_type(2))
        kind = node.op_type if not _domain(node.domain) else f"{node.domain}.{node.op_type}"
        out.steps.append(Step(where, kind, row, attributes, graphs, inputs, outputs, call))

    def _found(self, scope: Scope, name: str, where: str) -> str:
        found = scope.find(name)
        if found is None:
            raise SerializationError(
                f"{where}: input {name!r} is made by nothing before it (a node after it that makes "
                "it would be a cycle, or an order that ONNX does not allow)"
            )
        return found

    def _literal(self, out: Graph, outputs: tuple[str, ...], given: dict, where: str) -> None:
        if len(outputs) != 1 or len(given) != 1:
            raise SerializationError(f"{where}: {sorted(given)}; needed are one value and one name")
        out.constants[outputs[0]] = _rows.literal(**given)
        out.literals.add(outputs[0])

    # --- functions --------------------------------------------------------------------------
    def inline(
        self, node: NodeProto, function: FunctionProto, scope: Scope, out: Graph, depth: int,
        schema: Any = None,
    ) -> None:  # fmt: skip
        """The steps of a function's body, with the node's values and attributes in it."""
        self._check_depth(depth + 1, function.name)
        self._check_count(self._size(function.node, depth))
        where = self._where(node, _domain(node.domain), None)
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise SerializationError(f"{where}: more inputs or results than its function has")
        inner = Scope(None, f"{scope.prefix}{node.name or node.op_type}/")
        for i, name in enumerate(function.input):
            given = node.input[i] if i < len(node.input) else ""
            inner.names[name] = self._found(scope, given, where) if given else ""
        given = _bindings(node, function, schema)
        versions = _versions(function.opset_import, where) or self.versions
        for part in function.node:
            self.node(_bound(part, given), inner, versions, out, depth + 1)
        for i, name in enumerate(node.output):
            if name:
                found = inner.find(function.output[i])
                if not found:
                    raise SerializationError(
                        f"{where}: its function makes no {function.output[i]!r}"
                    )
                if name in scope.names:
                    raise SerializationError(f"{where}: value {name!r} is there twice")
                scope.names[name] = found

    def _attribute(self, a: AttributeProto, where: str) -> Any:
        """An attribute's value: texts as str, lists as tuples, tensors as arrays."""
        what = f"{where}: attribute {a.name!r}"
        if a.type == AttributeProto.TENSOR:
            return array_of(a.t, self.limits.bytes, what)
        if a.type == AttributeProto.TYPE_PROTO:
            return a.tp
        if a.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.GRAPHS):
            raise OperatorError(f"{what} of a kind that is not known here")
        try:
            value = onnx.helper.get_attribute_value(a)
        except ValueError as error:
            raise SerializationError(f"{what}: {error}") from None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, (int, float)):
            return value
        if value is None:
            raise SerializationError(f"{what} has no value")
        return tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _versions(imports: Iterable[onnx.OperatorSetIdProto], source: str) -> Versions:
    versions = {_domain(i.domain): i.version for i in imports}
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= versions.get("", _OLDEST) <= newest:
        raise OperatorError(
            f"{source}: version {versions['']} of ai.onnx; known are those up to {newest}"
        )
    return versions


@functools.lru_cache(maxsize=1024)
def _schema(domain: str, operator: str, version: int) -> Any:
    """What ONNX says of an operator, where it says something."""
    if domain not in _STANDARD:
        return None
    try:
        return onnx.defs.get_schema(operator, version, domain)
    except (onnx.defs.SchemaError, RuntimeError, TypeError, OverflowError):
        return None


def _near(schema: Any, domain: str) -> str:
    if schema is not None:
        return "ONNX has it, and the table in disttrain/onnx/reading/operators has no function"
    if domain in _STANDARD:
        return "ONNX has none of that name in that version"
    return f"operators of domain {domain!r} are no part of ONNX"


def _body(schema: Any, node: NodeProto, version: int) -> FunctionProto | None:
    """The function that ONNX itself says an operator is, where no types are needed to know it."""
    if schema is None or not schema.has_function:
        return None
    known = [v for v in schema.function_opset_versions if v <= version]
    text = schema.get_function_with_opset_version(max(known)) if known else b""
    if not text:
        return None
    function = FunctionProto()
    function.ParseFromString(text)
    return function


def _check_node(node: NodeProto, schema: Any, where: str) -> None:
    """What ONNX says of inputs, results and attributes."""
    if schema is None:
        return
    given = {a.name for a in node.attribute}
    unknown = sorted(given - set(schema.attributes))
    if unknown:
        raise OperatorError(f"{where}: attribute {unknown[0]!r} is none of this operator's")
    for a in node.attribute:
        needed = str(schema.attributes[a.name].type).rpartition(".")[2]
        if AttributeProto.AttributeType.Name(a.type) != needed:
            raise SerializationError(f"{where}: attribute {a.name!r} is not of type {needed}")
    missing = [n for n, a in schema.attributes.items() if a.required and n not in given]
    if missing:
        raise SerializationError(f"{where}: attribute {missing[0]!r} is missing")
    for what, count, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("results", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            raise SerializationError(f"{where}: {count} {what}; needed are {least} to {most}")


def _bindings(node: NodeProto, function: FunctionProto, schema: Any) -> dict[str, AttributeProto]:
    """Attributes that a function's body may refer to: the node's, else those that are usual."""
    given = {a.name: a for a in function.attribute_proto}
    if schema is not None:
        for name, a in schema.attributes.items():
            if a.default_value.name:
                given[name] = a.default_value
    return given | {a.name: a for a in node.attribute}


def _bound(part: NodeProto, given: dict[str, AttributeProto]) -> NodeProto:
    """A node of a body with attributes in place of references to them."""
    if not _refers(part):
        return part
    out = NodeProto()
    out.CopyFrom(part)
    del out.attribute[:]
    for a in part.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in given:
                bound = out.attribute.add()
                bound.CopyFrom(given[a.ref_attr_name])
                bound.name = a.name
        else:
            bound = out.attribute.add()
            bound.CopyFrom(a)
            if a.type == AttributeProto.GRAPH:
                inner = [_bound(n, given) for n in a.g.node]
                del bound.g.node[:]
                bound.g.node.extend(inner)
    return out


def _refers(part: NodeProto) -> bool:
    return any(
        a.ref_attr_name or (a.type == AttributeProto.GRAPH and any(map(_refers, a.g.node)))
        for a in part.attribute
    )


def _port(value: ValueInfoProto, name: str) -> Port:
    """What a message says of a value, as ``name``."""
    kind: TypeProto = value.type
    if not kind.HasField("tensor_type"):
        return Port(name)
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return Port(name, tensor.elem_type or None)
    sizes: list[int | str | None] = []
    for d in tensor.shape.dim:
        known = d.HasField("dim_value") and d.dim_value >= 0
        named = d.dim_param not in ("", "?")  # some write ? for what changes, or -1
        sizes.append(d.dim_value if known else str(d.dim_param) if named else None)
    return Port(name, tensor.elem_type or None, tuple(sizes))
