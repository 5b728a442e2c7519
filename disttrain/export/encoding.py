"""Programs as JSON, and back: every value with its kind, every name checked.

What comes from a file is doubted until ``decode`` has checked it: kinds, names that are defined
before they are used (so there are no cycles), primitives that are declared, sizes that are parsed.
There is no code in it, and nothing in it is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..core.types import dtypes
from ..core.types.device import device
from ..errors import CaptureError, SerializationError
from ..ops.primitives.aliases import Layout
from . import bodies, schema, vocabulary
from .sizes import Size, SizeError
from .values import Graph, Name, Node, Value
from .vocabulary import GENERATOR

DEEPEST = 32  # of parameters, and of graphs in graphs
LONGEST = 1 << 34  # elements of a value
_DTYPES = {
    str(np.dtype(d.np)): np.dtype(d.np)
    for d in vars(dtypes).values()
    if isinstance(d, dtypes.dtype)
}


# --- to JSON --------------------------------------------------------------------------------------
def encoded(x: Any, where: str) -> Any:
    """A parameter or argument as JSON."""
    if x is None or type(x) in (bool, int, str):
        return x
    if type(x) is float:
        return x if math.isfinite(x) else {"float": repr(x)}
    if type(x) is Name:
        return {"value": str(x)}
    if type(x) is Size:
        return {"size": x.text}
    if isinstance(x, Layout):
        return {"layout": [encoded(y, where) for y in x]}
    if isinstance(x, tuple):
        if hasattr(x, "_fields"):
            raise CaptureError(f"export: {where} is a {type(x).__name__}, which no file can hold")
        return [encoded(y, where) for y in x]
    if isinstance(x, dict):
        return {"dict": [[encoded(k, where), encoded(v, where)] for k, v in x.items()]}
    if isinstance(x, slice):
        return {"slice": [encoded(y, where) for y in (x.start, x.stop, x.step)]}
    if isinstance(x, np.dtype):
        return {"dtype": str(x)}
    if isinstance(x, Graph):
        return {"graph": graph_json(x, where)}
    return _odd(x, where)


def _odd(x: Any, where: str) -> Any:
    if x is Ellipsis:
        return {"ellipsis": True}
    if isinstance(x, complex):
        return {"complex": [repr(x.real), repr(x.imag)]}
    if x is GENERATOR:
        return {"generator": "default"}
    if isinstance(x, device):
        return {"device": str(x)}
    if isinstance(x, type) and issubclass(x, np.generic):
        return {"dtype": str(np.dtype(x))}
    raise CaptureError(f"export: {where} is {x!r:.80}, which no file can hold")


def shape_json(shape: Sequence[Any]) -> list:
    """A shape."""
    return [n.text if isinstance(n, Size) else int(n) for n in shape]


def value_json(value: Value) -> list:
    """A value's name, type and shape."""
    return [value.name, str(value.dtype), shape_json(value.shape)]


def graph_json(graph: Graph, where: str) -> dict[str, Any]:
    """A graph."""
    return {
        "inputs": list(graph.inputs),
        "outputs": list(map(str, graph.outputs)),
        "values": [value_json(v) for v in graph.values.values()],
        "nodes": [_node_json(n, where) for n in graph.nodes],
    }


def _node_json(node: Node, where: str) -> dict[str, Any]:
    at = f"{where}{node.primitive} at {node.line or 'an unknown line'}"
    made: dict[str, Any] = {"op": node.primitive, "args": [encoded(a, at) for a in node.args]}
    if node.params:
        made["params"] = {k: encoded(v, f"{k} of {at}") for k, v in node.params.items()}
    made["outputs"] = list(map(str, node.outputs))
    if node.module:
        made["module"] = node.module
    if node.line:
        made["line"] = node.line
    return made


# --- from JSON ------------------------------------------------------------------------------------
class Decoder:
    """Reads one program. ``where``: the file, for messages; ``dims``: the names of dimensions."""

    def __init__(self, where: str, dims: Sequence[str] = ()) -> None:
        self.where, self.dims = where, frozenset(dims)
        self.sizes: dict[str, Size] = {}

    def refuse(self, what: str) -> NoReturn:
        raise SerializationError(
            f"{self.where}: {what}. The file is damaged, or of another program"
        )

    # --- small things -----------------------------------------------------------------------
    def fields(self, x: Any, what: str, needed: Sequence[str], others: Sequence[str] = ()) -> dict:
        """A dict with these keys."""
        if type(x) is not dict or not set(needed) <= set(x) <= {*needed, *others}:
            self.refuse(f"{what} needs {', '.join(needed)}; {_short(x)} found")
        found: dict = x
        return found

    def items(self, x: Any, what: str) -> list:
        if type(x) is not list:
            self.refuse(f"{what} is no list but {_short(x)}")
        found: list = x
        return found

    def text(self, x: Any, what: str, most: int = 1000) -> str:
        if type(x) is not str or len(x) > most:
            self.refuse(f"{what} is {_short(x)}; a text is needed")
        found: str = x
        return found

    def number(self, x: Any, what: str) -> int:
        if type(x) is not int or not 0 <= x < LONGEST:
            self.refuse(f"{what} is {_short(x)}; a number of 0 or more is needed")
        found: int = x
        return found

    def size(self, text: Any, what: str) -> Size:
        """An expression of the dimensions of this program."""
        text = self.text(text, what, 4000)
        if text not in self.sizes:
            try:
                made = Size(text)
            except SizeError as error:
                self.refuse(f"{what}: {error}")
            unknown = made.names - self.dims
            if unknown:
                self.refuse(
                    f"{what}: {text!r:.80} uses {min(unknown)!r:.40}, which is no dimension"
                )
            self.sizes[text] = made
        return self.sizes[text]

    def dtype(self, x: Any, what: str) -> np.dtype:
        if type(x) is not str or x not in _DTYPES:
            self.refuse(f"{what}: type {_short(x)} is not known")
        return _DTYPES[x]

    # --- values -----------------------------------------------------------------------------
    def value(self, x: Any) -> Value:
        """A name with a type and a shape."""
        if type(x) is not list or len(x) != 3:
            self.refuse(f"a value is {_short(x)}; its name, type and shape are needed")
        name = self.text(x[0], "the name of a value")
        what = f"value {name!r:.60}"
        shape = []
        for n in self.items(x[2], f"the shape of {what}"):
            shape.append(self.size(n, what) if type(n) is str else self.number(n, what))
        if len(shape) > 64 or math.prod(n for n in shape if type(n) is int and n) >= LONGEST:
            self.refuse(f"{what} has shape {_short(x[2])}, larger than any memory")
        return Value(name, tuple(shape), self.dtype(x[1], what))

    def plain(self, x: Any, what: str, depth: int = 0) -> Any:
        """A parameter or argument."""
        if depth > DEEPEST:
            self.refuse(f"{what} is nested too deeply")
        if x is None or type(x) in (bool, str, float):
            return x
        if type(x) is int:
            if abs(x) > 1 << 64:
                self.refuse(f"{what} is a number of {x.bit_length()} bits")
            return x
        if type(x) is list:
            return tuple(self.plain(y, what, depth + 1) for y in x)
        if type(x) is not dict or len(x) != 1:
            self.refuse(f"{what} is {_short(x)}")
        kind, of = next(iter(x.items()))
        make = _KINDS.get(kind)
        if make is None:
            self.refuse(f"{what} is of kind {_short(kind)}")
        return make(self, of, what, depth + 1)

    def slice_of(self, x: Any, what: str, depth: int) -> slice:
        parts = self.items(x, what)
        if len(parts) != 3:
            self.refuse(f"{what} is a slice of {len(parts)} numbers")
        ends = [self.plain(y, what, depth) for y in parts]
        if not all(y is None or type(y) in (int, Size) for y in ends):
            self.refuse(f"{what} is a slice of {_short(parts)}")
        return slice(*ends)

    def dict_of(self, x: Any, what: str, depth: int) -> dict:
        out = {}
        for pair in self.items(x, what):
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, int):
                self.refuse(f"{what} holds {_short(pair)}; a key and a value are needed")
            out[pair[0]] = self.plain(pair[1], what, depth)
        return out

    def float_of(self, x: Any, what: str, depth: int) -> float:
        if x not in ("inf", "-inf", "nan"):
            self.refuse(f"{what} is the number {_short(x)}")
        return float(x)

    def complex_of(self, x: Any, what: str, depth: int) -> complex:
        try:
            real, imag = x
            return complex(float(str(real)), float(str(imag)))
        except (TypeError, ValueError):
            self.refuse(f"{what} is the number {_short(x)}")

    def layout(self, x: Any, what: str, depth: int) -> Layout:
        parts = self.plain(x, what, depth)
        if type(parts) is not tuple or len(parts) != 3 or type(parts[1]) is not tuple:
            self.refuse(f"{what} is the layout {_short(x)}")
        if not all(type(n) in (int, Size) for n in (parts[0], parts[2], *parts[1])):
            self.refuse(f"{what} is the layout {_short(x)}")
        return Layout(*parts)

    def device(self, x: Any, what: str, depth: int) -> device:
        if x not in ("cpu", "cuda", "cuda:0"):
            self.refuse(f"{what} is the device {_short(x)}")
        return device(x)

    # --- graphs -----------------------------------------------------------------------------
    def graph(self, x: Any, known: Mapping[str, Value], depth: int = 0) -> Graph:
        """A graph; ``known``: values that it may use besides its own inputs."""
        if depth > DEEPEST:
            self.refuse("graphs are nested too deeply")
        x = self.fields(x, "a graph", ("inputs", "outputs", "values", "nodes"))
        values = {v.name: v for v in map(self.value, self.items(x["values"], "values"))}
        if len(values) != len(x["values"]):
            self.refuse("two values have one name")
        inputs = tuple(self.text(n, "an input") for n in self.items(x["inputs"], "inputs"))
        defined = {*known, *inputs}
        for name in inputs:
            if name not in values:
                self.refuse(f"the input {name!r:.60} has no shape")
        if len(set(inputs)) != len(inputs):
            self.refuse("an input stands twice")
        nodes = []
        for node in self.items(x["nodes"], "nodes"):
            nodes.append(self.node(node, values, defined, known, depth))
        outputs = tuple(
            Name(self.text(n, "an output")) for n in self.items(x["outputs"], "outputs")
        )
        for name in outputs:
            if name not in defined:
                self.refuse(f"the output {name!r:.60} is made by no node")
        return Graph(inputs, tuple(nodes), outputs, values)

    def node(self, x: Any, values: dict, defined: set, known: Mapping, depth: int) -> Node:
        """A node, whose arguments must be defined already."""
        x = self.fields(x, "a node", ("op", "args", "outputs"), ("params", "module", "line"))
        op = self.text(x["op"], "the operation of a node", 100)
        what = f"node {op!r:.60}"
        prim = None if op in bodies.NAMES else vocabulary.find(op)
        if prim is None and op not in bodies.NAMES:
            raise SerializationError(
                f"{self.where}: no operation is called {op!r:.60} here. The file is damaged, or "
                "was written by a newer version of disttrain"
            )
        args = tuple(self.plain(a, f"an argument of {what}") for a in self.items(x["args"], what))
        for name in _names_in(args):
            if name not in defined:
                self.refuse(f"{what} uses {str(name)!r:.60}, which nothing before it makes")
        told = x.get("params", {})
        if type(told) is not dict:
            self.refuse(f"the parameters of {what} are {_short(told)}")
        params = {k: self._param(v, f"{k!r:.40} of {what}", known, depth) for k, v in told.items()}
        outputs = tuple(
            self.text(o, f"an output of {what}") for o in self.items(x["outputs"], what)
        )
        why = schema.fault_of_bodies(op, args, params) if prim is None else schema.fault(
            prim, args, params)  # fmt: skip
        if why is not None:
            self.refuse(f"{what}: {why}")
        if not outputs or (prim is not None and not prim.multi and len(outputs) != 1):
            self.refuse(f"{what} has {len(outputs)} outputs")
        for o in outputs:
            if o in defined or o not in values:
                self.refuse(f"{what} makes {o!r:.60}, which "
                            f"{'stands twice' if o in defined else 'has no shape'}")  # fmt: skip
            defined.add(o)
        module, line = x.get("module", ""), x.get("line", "")
        return Node(op, args, params, tuple(map(Name, outputs)),
                    self.text(module, "a module"), self.text(line, "a line"))  # fmt: skip

    def _param(self, x: Any, what: str, known: Mapping, depth: int) -> Any:
        if type(x) is dict and set(x) == {"graph"}:
            return self.graph(x["graph"], known, depth + 1)
        if type(x) is list and any(type(y) is dict and set(y) == {"graph"} for y in x):
            return tuple(self._param(y, what, known, depth) for y in x)
        found = self.plain(x, what)
        if _names_in((found,)):
            self.refuse(f"{what} names a value")
        return found


def _names_in(x: Any) -> list[Name]:
    if type(x) is Name:
        return [x]
    if isinstance(x, dict):
        x = tuple(x.values())
    return [n for y in x for n in _names_in(y)] if isinstance(x, tuple) else []


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


_KINDS: dict[str, Callable[[Decoder, Any, str, int], Any]] = {
    "value": lambda d, x, what, depth: Name(d.text(x, what)),
    "size": lambda d, x, what, depth: d.size(x, what),
    "float": Decoder.float_of,
    "complex": Decoder.complex_of,
    "dict": Decoder.dict_of,
    "slice": Decoder.slice_of,
    "dtype": lambda d, x, what, depth: d.dtype(x, what),
    "ellipsis": lambda d, x, what, depth: Ellipsis,
    "layout": Decoder.layout,
    "device": Decoder.device,
    "generator": lambda d, x, what, depth: GENERATOR,
}


__all__ = ["Decoder", "encoded", "graph_json", "shape_json", "value_json"]
