"""Files of programs: a safetensors file with the graph in its header (``m.dtp``), or a folder of
a graph and a safetensors file. Tensors are mapped, so that processes share their pages.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.llvm.checksum import crc32c_blocks
from ..core.tensor import Tensor, wrap
from ..core.types.device import CPU, usable
from ..errors import ConfigError, SerializationError
from ..nn import Parameter
from ..serialize.files import Mapped, Stream, total, write_file, write_stream
from ..serialize.layout import CODES, NAMES, Entry, Header, build, header_length, load_json, parse
from . import program as programs
from . import ranges, trees
from .dims import Dim
from .encoding import Decoder, encoded, graph_json
from .program import Program, Signature
from .sizes import SizeError
from .values import Graph, Value

FORMAT = "disttrain.program"
VERSION = 1
SUFFIX = ".dtp"
_GRAPH, _TENSORS = "graph.json", "model.safetensors"
_FIELDS = (
    "format", "version", "producer", "dims", "arguments", "positional", "result", "outputs",
    "state", "orders", "constants", "relations", "writes", "metadata", "graph",
)  # fmt: skip
_INLINE = 12 << 20  # of a graph's text in a header


# --- writing --------------------------------------------------------------------------------------
def save(program: Program, path: Any) -> None:
    """Write ``program`` to ``path`` (see ``Program.save``)."""
    stream = hasattr(path, "write")
    if not isinstance(path, (str, os.PathLike)) and not stream:
        raise ConfigError(f"save: {type(path).__name__} given; a path or a file is needed")
    path = path if stream else os.fsdecode(path)
    text = json.dumps(program_json(program), separators=(",", ":"), allow_nan=False)
    arrays = {name: _host(name, t) for name, t in program.tensors()}
    if stream or os.path.splitext(path)[1]:
        if len(text) > _INLINE:
            raise SerializationError(f"save: the graph of {path} takes {len(text)} bytes; give a "
                                     "path without a suffix, for a folder")  # fmt: skip
        write(path, arrays, {FORMAT: text})
        return
    os.makedirs(path, exist_ok=True)
    write(os.path.join(path, _TENSORS), arrays, {})
    check = f"{zlib.crc32(text.encode()):08x}"
    whole = f'{{"checksum":"{check}","program":{text}}}'.encode()
    write_file(os.path.join(path, _GRAPH), [whole], len(whole))


def _host(name: str, t: Tensor) -> np.ndarray:
    array = t.detach().cpu().array
    if not isinstance(array, np.ndarray):
        raise SerializationError(f"save: {name} is a {type(array).__name__}; plain tensors can be "
                                 "saved")  # fmt: skip
    return array


def write(path: Any, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """A safetensors file."""
    entries, data, at = [], [], 0
    for name in sorted(arrays, key=lambda n: -min(arrays[n].itemsize, 8)):
        array = np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
        raw = array.reshape(-1).view(np.uint8)
        shape: tuple[int, ...] = array.shape
        kind = array.dtype
        if kind not in NAMES:  # complex128
            kind, shape = np.dtype(np.float64), (*shape, 2)
        entries.append(Entry(name, NAMES[kind], shape, at, at + raw.size))
        data.append(raw)
        at += raw.size
    header = build(entries, metadata, [int(s) for raw in data for s in crc32c_blocks(raw)])
    parts = [header, *data]
    if hasattr(path, "write"):
        write_stream(path, parts)
    else:
        write_file(path, parts, total(parts))


def program_json(program: Program) -> dict[str, Any]:
    """A program without its tensors."""
    kinds = [[n, _kind(program, n, t)] for n, t in program.state.items()]
    return {
        "format": FORMAT,
        "version": VERSION,
        "producer": f"disttrain {sys.modules['disttrain'].__version__}",
        "dims": [
            [d.name, d.min, d.max, program.examples.get(d.name, d.min)]
            for d in program.dims.values()
        ],
        "arguments": [[k, _spec_json(v)] for k, v in program.signature.arguments.items()],
        "positional": program.signature.positional,
        "result": _spec_json(program.signature.result),
        "outputs": [v.name for v in program.outputs],
        "state": kinds,
        "orders": {n: o for n, t in program.tensors() if (o := _order(t)) is not None},
        "constants": list(program.constants),
        "relations": [[r.text, line] for r, line in program.relations],
        "writes": [list(pair) for pair in program.writes],
        "metadata": dict(program.metadata),
        "graph": graph_json(program.graph, ""),
    }


def _kind(program: Program, name: str, t: Tensor) -> str:
    if name not in program.parameters:
        return "buffer"
    return "parameter" if t.requires_grad else "frozen"


def _spec_json(spec: dict) -> dict:
    if spec["kind"] == "plain":
        return {"kind": "plain", "value": encoded(spec["value"], "an argument")}
    if "parts" not in spec:
        return spec
    return {**spec, "parts": [_spec_json(part) for part in spec["parts"]]}


def _order(t: Tensor) -> list[int] | None:
    """The order of dimensions in memory, where it is not theirs: kernels may give other digits for
    other orders."""
    array = t.array
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return None
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    return order if array.transpose(order).flags.c_contiguous else None


# --- reading --------------------------------------------------------------------------------------
def load_program(path: Any, *, device: Any = "cpu", verify: bool = True) -> Program:
    """The program in ``path``, as ``Program.save`` wrote it. Its tensors are mapped: processes that
    load one file share its pages; what is written to them stays in this process. ``device``:
    where it is to run; ``verify``: compare checksums of tensors.

    Nothing in the file is run, imported or unpickled. Raises ``SerializationError`` where it is
    damaged, hostile, or of a newer version.
    """
    stream = hasattr(path, "read")
    if not isinstance(path, (str, os.PathLike)) and not stream:
        raise ConfigError(f"load_program: {type(path).__name__} given; a path or a file is needed")
    path = path if stream else os.fsdecode(path)
    where = f"load_program: {getattr(path, 'name', type(path).__name__) if stream else path}"
    if not stream and os.path.isdir(path):
        graph, tensors = os.path.join(path, _GRAPH), os.path.join(path, _TENSORS)
        text = _folder_text(graph, where)
        header, arrays = _tensors(tensors, where, verify)
    else:
        header, arrays = _tensors(path, where, verify)
        if FORMAT not in header.metadata:
            raise SerializationError(f"{where}: this is a safetensors file without a program; "
                                     "dt.load reads its tensors")  # fmt: skip
        text = load_json(header.metadata[FORMAT].encode(), f"{where}: graph")
    program = read_program(text, arrays, where)
    return program if usable(device) is CPU else program.to(device)


def read_program(text: Any, arrays: dict[str, np.ndarray], where: str) -> Program:
    """The program that ``text`` (what ``program_json`` made, doubted) says, with ``arrays``."""
    try:
        return _Reader(where, arrays).program(text)
    except SizeError as error:
        raise SerializationError(f"{where}: {error}. The file is damaged") from None


def _folder_text(path: str, where: str) -> Any:
    with open(path, "rb") as f:
        raw = f.read((256 << 20) + 1)
    if len(raw) > 256 << 20:
        raise SerializationError(f"{where}: {_GRAPH} is larger than 256 MiB")
    found = load_json(raw, f"{where}: {_GRAPH}")
    if type(found) is not dict or set(found) != {"checksum", "program"}:
        raise SerializationError(f"{where}: {_GRAPH} needs exactly checksum and program")
    text = json.dumps(found["program"], separators=(",", ":"))
    if found["checksum"] != f"{zlib.crc32(text.encode()):08x}":
        raise SerializationError(f"{where}: {_GRAPH} does not fit its checksum. The file is "
                                 "damaged, or was changed; load a copy that is whole")  # fmt: skip
    return found["program"]


def _tensors(path: Any, where: str, verify: bool) -> tuple[Header, dict[str, np.ndarray]]:
    """The header of a file, and its tensors."""
    if hasattr(path, "read"):
        raw = Stream(path, where).whole(b"")
        return _taken(lambda begin, count: raw[begin : begin + count], raw.size, where, verify)
    with open(path, "rb", buffering=0) as f:
        size = os.fstat(f.fileno()).st_size
        return _taken(Mapped(f.fileno(), size).piece, size, where, verify)


def _taken(
    piece: Callable[[int, int], np.ndarray], size: int, where: str, verify: bool
) -> tuple[Header, dict[str, np.ndarray]]:
    first = bytes(piece(0, min(16, size)))
    length = header_length(first, size, where)
    header = parse(bytes(piece(0, 8 + length)), size - 8 - length, where)
    arrays = {}
    for entry in header.entries.values():
        raw = piece(header.start + entry.begin, entry.end - entry.begin)
        known = header.blocks.get(entry.name)
        if verify and known is not None and crc32c_blocks(raw).tolist() != known:
            raise SerializationError(f"{where}: tensor {entry.name!r}: its bytes do not fit their "
                                     "checksum. It is damaged; load a whole copy")  # fmt: skip
        if entry.code == "BOOL" and raw.size and raw.max() > 1:
            raise SerializationError(f"{where}: tensor {entry.name!r}: truth values other than 0 "
                                     "and 1")  # fmt: skip
        whole = raw if raw.size and raw.ctypes.data % 8 == 0 else raw.copy()
        arrays[entry.name] = whole.view(CODES[entry.code]).reshape(entry.shape)
    return header, arrays


class _Reader:
    """Makes the program of a text and tensors."""

    def __init__(self, where: str, arrays: dict[str, np.ndarray]) -> None:
        self.where, self.arrays = where, arrays
        self.decoder = Decoder(where)
        self.examples: dict[str, int] = {}

    def program(self, x: Any) -> Program:
        d = self.decoder
        if type(x) is dict and x.get("format") == FORMAT and x.get("version") != VERSION:
            raise SerializationError(
                f"{self.where}: version {x.get('version')!r:.20} of the format; this program reads "
                f"{VERSION}. Load it with a newer version of disttrain"
            )
        x = d.fields(x, "a program", _FIELDS)
        dims = self._dims(x["dims"])
        self.decoder = d = Decoder(self.where, tuple(dims))
        state = self._pairs(x["state"], "state")
        constants = [d.text(n, "a constant") for n in d.items(x["constants"], "constants")]
        if (
            type(x["orders"]) is not dict
            or set(x["orders"]) - set(self.arrays)
            or {*state, *constants} != set(self.arrays)
        ):
            odd = sorted({*state, *constants} ^ set(self.arrays))
            d.refuse(f"tensors and the program's names differ: {odd[:3]!r:.80}")
        held = self._values(x["graph"], [*state, *constants])
        graph = d.graph(x["graph"], held)
        found = {name: self._tensor(held[name], x["orders"].get(name)) for name in held}
        made = self._made(x, dims, graph, {n: found[n] for n in state},
                          {n: found[n] for n in constants}, state)  # fmt: skip
        self._check(made)
        return made

    def _dims(self, x: Any) -> dict[str, Dim]:
        d, out = self.decoder, {}
        for entry in d.items(x, "dims"):
            if type(entry) is not list or len(entry) != 4:
                d.refuse(f"a dimension is {entry!r:.60}")
            name, low = d.text(entry[0], "a dimension", 200), d.number(entry[1], "its least")
            high = None if entry[2] is None else d.number(entry[2], "its largest size")
            if not name.isidentifier() or name in out or (high is not None and high < low):
                d.refuse(f"a dimension is {entry!r:.60}")
            out[name] = Dim(name, min=low, max=high)
            self.examples[name] = d.number(entry[3], "its size in the example")
        return out

    def _pairs(self, x: Any, what: str) -> dict[str, str]:
        d, out = self.decoder, {}
        for pair in d.items(x, what):
            if type(pair) is not list or len(pair) != 2:
                d.refuse(f"{what} holds {pair!r:.60}")
            out[d.text(pair[0], what)] = d.text(pair[1], what)
        if len(out) != len(x):
            d.refuse(f"{what} holds a name twice")
        return out

    def _values(self, graph: Any, names: list[str]) -> dict[str, Value]:
        """The values of state and constants, which the tensors must fit."""
        d = self.decoder
        table = d.items(d.fields(graph, "a graph", ("inputs", "outputs", "values", "nodes"))
                        ["values"], "values")  # fmt: skip
        known = {v.name: v for v in map(d.value, table)}
        for name in names:
            if name not in known:
                d.refuse(f"{name!r:.60} has no shape")
        return {name: known[name] for name in names}

    def _tensor(self, value: Value, order: Any) -> Tensor:
        d, array = self.decoder, self.arrays[value.name]
        if value.dtype == np.complex128:
            array = np.ascontiguousarray(array).view(np.complex128)[..., 0]
        if array.dtype != value.dtype or array.shape != value.shape:
            d.refuse(f"tensor {value.name!r:.60} is {array.dtype}{list(array.shape)}; the program "
                     f"needs {value}")  # fmt: skip
        if order is not None:
            if type(order) is not list or sorted(order) != list(range(array.ndim)):
                d.refuse(f"the order of {value.name!r:.60} is {order!r:.60}")
            back = [order.index(i) for i in range(len(order))]
            array = np.ascontiguousarray(array.transpose(order)).transpose(back)
        return wrap(array)

    def _made(
        self, x: dict, dims: dict, graph: Graph, state: dict, constants: dict, kinds: dict
    ) -> Program:
        d = self.decoder
        arguments = {}
        for pair in d.items(x["arguments"], "arguments"):
            if type(pair) is not list or len(pair) != 2:
                d.refuse(f"an argument is {pair!r:.60}")
            arguments[d.text(pair[0], "an argument")] = self._spec(pair[1])
        result = self._spec(x["result"])
        wanted = sum(map(trees.count, arguments.values()))
        if wanted != len(graph.inputs) or trees.count(result) != len(graph.outputs):
            d.refuse("the structure of arguments or results does not fit the graph")
        names = [d.text(n, "an output") for n in d.items(x["outputs"], "outputs")]
        if len(names) != len(graph.outputs) or len(set(names)) != len(names):
            d.refuse("the names of outputs do not fit the graph")
        values = graph.values
        known = {**values}
        for n, kind in kinds.items():
            if kind not in ("parameter", "frozen", "buffer"):
                d.refuse(f"{n!r:.60} is a {kind!r:.40}")
            if kind != "buffer":
                floating = values[n].dtype.kind in "fcV"
                state[n] = Parameter(state[n], requires_grad=floating and kind == "parameter")
        for pair in d.items(x["relations"], "relations"):
            if type(pair) is not list or len(pair) != 2:
                d.refuse(f"a relation is {pair!r:.60}")
        relations = tuple(
            (d.size(text, "a relation"), d.text(line, "a line")) for text, line in x["relations"]
        )
        writes = self._writes(x["writes"], graph, {**state, **constants})
        about = x["metadata"]
        if type(about) is not dict:
            d.refuse("metadata is no dict")
        return Program(
            graph=graph,
            inputs=tuple(known[n] for n in graph.inputs),
            outputs=tuple(known[n]._replace(name=o)
                          for n, o in zip(graph.outputs, names, strict=True)),
            dims=dims, state=state, constants=constants,
            signature=Signature(arguments, result, d.number(x["positional"], "positional")),
            parameters=tuple(n for n in kinds if kinds[n] != "buffer"),
            buffers=tuple(n for n in kinds if kinds[n] == "buffer"),
            relations=relations, writes=writes, examples=self.examples,
            metadata={d.text(k, "metadata"): d.text(v, "metadata", 1 << 20)
                      for k, v in about.items()},
            doubted=True,
        )  # fmt: skip

    def _spec(self, x: Any) -> dict:
        return trees.checked(x, self.where, self.decoder.size)

    def _writes(self, x: Any, graph: Graph, state: dict) -> tuple[tuple[str, str], ...]:
        d, out = self.decoder, []
        for pair in d.items(x, "writes"):
            good = type(pair) is list and len(pair) == 2 and all(type(n) is str for n in pair)
            if not good or pair[0] not in {*state, *graph.inputs} or pair[1] not in graph.values:
                d.refuse(f"a write is {pair!r:.80}")
            out.append((pair[0], pair[1]))
        return tuple(out)

    def _check(self, made: Program) -> None:
        """That shapes are what the rules of primitives say."""
        why = ranges.disagreement(made, made.examples)
        if why is not None:
            self.decoder.refuse(why)


programs.provide(save)

__all__ = ["FORMAT", "SUFFIX", "VERSION", "load_program", "program_json", "read_program", "save"]
