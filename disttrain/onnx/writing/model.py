"""The model itself: nodes that results need, constants and parameters by name, shapes with the
names of dimensions, and the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .types import Ref, element_type, is_number, tensor
from .writer import Body, Op

PRODUCER = "disttrain"
LIMIT = (1 << 31) - (1 << 20)  # bytes of a file of one message
SMALL = 1024  # bytes up to which a tensor stays in the model
_PAGE = 4096  # where large tensors begin, so that they can be mapped into memory

# Whose last results may be left out.
_OPTIONAL = frozenset("LayerNormalization MaxPool Dropout LSTM GRU RNN".split())


def pruned(ops: Sequence[Op], wanted: Sequence[str]) -> list[Op]:
    """The nodes that something needs, without last results that nothing uses."""
    used, kept = set(wanted), []
    for op in reversed(ops):
        if used.isdisjoint(op.outputs):
            continue
        for body in bodies(op):
            body.ops = pruned(body.ops, [r.name for r in body.outputs])
        used |= taken(op)
        while op.kind in _OPTIONAL and op.outputs[-1] not in used:
            op.outputs.pop()
        kept.append(op)
    return kept[::-1]


def bodies(op: Op) -> list[Body]:
    """The graphs in a node."""
    return [v for v in op.attributes.values() if isinstance(v, Body)]


def taken(op: Op) -> set[str]:
    """The values that a node takes, and the graphs in it from around them."""
    found = set(op.inputs)
    for body in bodies(op):
        inside = {r.name for r in body.inputs} | {o for inner in body.ops for o in inner.outputs}
        used = {n for inner in body.ops for n in taken(inner)}
        found |= (used | {r.name for r in body.outputs}) - inside
    return found


def renamed(ops: Sequence[Op], names: Mapping[str, str]) -> None:
    """Other names for some values, inside of bodies as well."""
    for op in ops:
        op.inputs = [names.get(n, n) for n in op.inputs]
        op.outputs = [names.get(n, n) for n in op.outputs]
        for body in bodies(op):
            renamed(body.ops, names)


# Nodes that are not the same, whatever they are given.
_DRAWING = frozenset("RandomUniformLike RandomNormalLike Bernoulli Multinomial Dropout".split())


def merged(ops: Sequence[Op], ends: Sequence[str]) -> list[Op]:
    """Equal nodes as one. ``ends``: names that stay."""
    names: dict[str, str] = {}
    seen: dict[tuple, Op] = {}
    kept = []
    for op in ops:
        renamed([op], names)
        key = op.kind, tuple(op.inputs), repr(sorted(op.attributes.items())), len(op.outputs)
        plain = not bodies(op) and op.kind not in _DRAWING
        if plain and key in seen and not set(op.outputs) & set(ends):
            names.update(zip(op.outputs, seen[key].outputs, strict=True))
            continue
        if plain:
            seen.setdefault(key, op)
        kept.append(op)
    return kept


def nodes_of(ops: Sequence[Op]) -> list[Any]:
    """As ONNX has them, each with a name that tells of its module."""
    counts: dict[str, int] = {}
    out = []
    for op in ops:
        base = "/".join(["", *filter(None, op.module.split(".")), op.kind])
        n = counts[base] = counts.get(base, -1) + 1
        given = {k: _graph(v) if isinstance(v, Body) else v for k, v in op.attributes.items()}
        inputs = list(op.inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        name = f"{base}_{n}" if n else base
        out.append(helper.make_node(op.kind, inputs, op.outputs, name=name, **given))
    return out


def _graph(body: Body) -> Any:
    given, ends = ([info(r) for r in refs] for refs in (body.inputs, body.outputs))
    return helper.make_graph(nodes_of(body.ops), "body", given, ends)


def info(ref: Ref) -> Any:
    """A value's type and shape; sizes that may change by their names."""
    shape = None
    if ref.shape is not None:
        shape = [int(n) if is_number(n) else str(n) for n in ref.shape]
    return helper.make_tensor_value_info(ref.name, element_type(ref.dtype), shape)


def ir_version(opset: int) -> int:
    """The oldest version of the format that an operator set goes with."""
    made: int = helper.find_min_ir_version_for([helper.make_opsetid("", opset)], True)
    return max(8, min(made, onnx.IR_VERSION))


def assembled(
    ops: Sequence[Op], inputs: Sequence[Ref], outputs: Sequence[Ref], known: Sequence[Ref],
    opset: int, name: str,
) -> Any:  # fmt: skip
    """The model without its constants. ``known``: values inside whose shapes are told."""
    made = {n for op in ops for n in op.outputs}
    ends = {r.name for r in outputs}
    told = [info(r) for r in known if r.name in made and r.name not in ends]
    graph = helper.make_graph(
        nodes_of(ops), name, [info(r) for r in inputs], [info(r) for r in outputs], value_info=told
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version(opset),
        producer_name=PRODUCER,
    )  # fmt: skip


def with_tensors(model: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A copy of the model that has its tensors."""
    full = type(model)()
    full.CopyFrom(model)
    full.graph.initializer.extend(tensor(a, n) for n, a in arrays.items())
    return full


def size_of(arrays: Mapping[str, np.ndarray]) -> int:
    """Bytes of all tensors."""
    return sum(a.nbytes for a in arrays.values())


def write(model: Any, arrays: Mapping[str, np.ndarray], path: str, external: bool | None) -> None:
    """The model as a file; ``external``: large tensors in a file of their own beside it, ``.data``
    (None: where one file has no room for them)."""
    if external is None:
        external = size_of(arrays) >= LIMIT
    if not external:
        _replace(path, with_tensors(model, arrays).SerializeToString())
        return
    full = type(model)()
    full.CopyFrom(model)
    place = os.path.basename(path) + ".data"
    temporary, at = f"{path}.data.part", 0
    with open(temporary, "wb") as file:
        for name, array in arrays.items():
            if array.nbytes <= SMALL:
                full.graph.initializer.append(tensor(array, name))
                continue
            at = -(-at // _PAGE) * _PAGE
            file.seek(at)
            file.write(_bytes(array))
            full.graph.initializer.append(_elsewhere(array, name, place, at))
            at += array.nbytes
        file.truncate(at)
    if at:
        os.replace(temporary, f"{path}.data")
    else:
        os.remove(temporary)
    _replace(path, full.SerializeToString())


def _bytes(array: np.ndarray) -> memoryview:
    whole = np.ascontiguousarray(array)
    return memoryview(whole.reshape(-1).view(np.uint8).data)


def _elsewhere(array: np.ndarray, name: str, place: str, at: int) -> Any:
    """A tensor whose numbers lie in another file."""
    made = onnx.TensorProto(
        name=name, data_type=element_type(array.dtype), dims=array.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )  # fmt: skip
    for key, value in (("location", place), ("offset", at), ("length", array.nbytes)):
        made.external_data.add(key=key, value=str(value))
    return made


def _replace(path: str, data: bytes) -> None:
    """A whole file, or the one of before."""
    with open(f"{path}.part", "wb") as file:
        file.write(data)
    os.replace(f"{path}.part", path)
