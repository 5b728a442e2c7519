"""The operations of a call as a ``GraphDef`` message, for TensorBoard's page of graphs. Field
numbers are those of TensorFlow's ``graph.proto`` and ``attr_value.proto``."""

from __future__ import annotations

from collections.abc import Sequence

from ..drawing import Graph
from ..protobuf import integer, nested, string

_PRODUCER = 22


def definition(graph: Graph) -> bytes:
    """The message: a node for each input, parameter, operation and result of ``graph``."""
    nodes = []
    for node in graph.nodes:
        sources = [graph.nodes[i].name for i in node.sources]
        nodes.append(_node(node.name, node.kind, sources, node.shapes, node.details))
    return b"".join(nodes) + versions()


def versions() -> bytes:
    """What a message ends with: the version of the format."""
    return nested(4, integer(1, _PRODUCER))


def _node(
    name: str, kind: str, sources: Sequence[str], shapes: Sequence[Sequence[int]], details: str
) -> bytes:
    listed = b"".join(
        nested(7, b"".join(nested(2, integer(1, n)) for n in shape)) for shape in shapes
    )
    attributes = [("_output_shapes", nested(1, listed))]
    if details:
        attributes.append(("attr", nested(2, details.encode())))
    body = string(1, name) + string(2, kind) + b"".join(string(3, s) for s in sources)
    body += b"".join(nested(5, string(1, k) + nested(2, value)) for k, value in attributes)
    return nested(1, body)
