"""Elements of a pipeline: tuples, dicts and named tuples of arrays; how they are taken apart, shown
to the program, and written as bytes. Knows no stage.

Inside of a pipeline the leaves are numpy arrays (texts: arrays of ``bytes`` objects); a Tensor
stays one where it has no memory of the host. The program's functions get Tensors, and ``bytes`` for
a single text.
"""

from __future__ import annotations

import functools
import json
import struct
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...core.types.dtypes import BY_NUMPY, known
from ...errors import DTypeError, SerializationError
from ...ops.functions.views.join import stack as stack_tensors

_HEAD = struct.Struct("<I")


class Nested:
    """What may stand in an element as a leaf although it is no array: a pipeline."""

    def packed(self) -> dict[str, Any]:
        """What ``unpacked`` of its class makes it of again."""
        raise NotImplementedError


def children(tree: Any) -> tuple[list, Callable[[list], Any]] | None:
    """The parts of a structure and what rebuilds it; None for a leaf. A list is a leaf."""
    if isinstance(tree, dict):
        keys = list(tree)
        return list(tree.values()), lambda parts: dict(zip(keys, parts, strict=True))
    if isinstance(tree, tuple) and type(tree).__name__ != "Size":
        if hasattr(tree, "_fields"):
            kind: Any = type(tree)
            return list(tree), lambda parts: kind(*parts)
        return list(tree), tuple
    return None if tree is not None else ([], lambda parts: None)


def flatten(tree: Any) -> tuple[list, Callable[[list], Any]]:
    """The leaves in order, and what rebuilds the structure from as many."""
    leaves: list = []
    build = _walk(tree, leaves)
    return leaves, lambda values: build(iter(values))


def _walk(tree: Any, leaves: list) -> Callable[[Any], Any]:
    found = children(tree)
    if found is None:
        leaves.append(tree)
        return next
    parts, rebuild = found
    builders = [_walk(part, leaves) for part in parts]
    return lambda it: rebuild([build(it) for build in builders])


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """``tree`` with ``fn`` of each leaf."""
    found = children(tree)
    if found is None:
        return fn(tree)
    parts, rebuild = found
    return rebuild([map_leaves(fn, part) for part in parts])


def paired(fn: Callable[[Any, Any], Any], tree: Any, other: Any) -> Any:
    """``tree`` with ``fn`` of each leaf and what stands at its place in ``other`` (None: None)."""
    if isinstance(tree, dict):
        return {k: paired(fn, v, other and other[k]) for k, v in tree.items()}
    if isinstance(tree, tuple):
        return tuple(paired(fn, v, other and other[i]) for i, v in enumerate(tree))
    return fn(tree, other)


def form(tree: Any) -> Any:
    """The structure as data: equal for elements of equal structure."""
    if tree is None:
        return "None"
    found = children(tree)
    if found is None:
        return "*"
    kind = "dict" if isinstance(tree, dict) else type(tree).__name__
    names = list(tree) if isinstance(tree, dict) else list(getattr(tree, "_fields", ()))
    return (kind, names, [form(part) for part in found[0]])


# --- leaves ---------------------------------------------------------------------------------------


def as_leaf(value: Any) -> Any:
    """An array of what a program gave as a leaf."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Tensor):
        if value.__class__ is not Tensor or value._node is not None:
            value = value.detach()
        array = value.__dict__.get("array")
        return array if array.__class__ is np.ndarray else value
    if isinstance(value, Nested):
        return value
    if isinstance(value, float):
        return np.asarray(value, np.float32)
    if isinstance(value, (bytes, str)):  # (numpy's own arrays of bytes lose zeros at the end)
        return np.array(_text(value), object)
    if isinstance(value, (list, range)):
        return _of_list(list(value))
    return _array(np.asarray(value))


def _of_list(value: list) -> Any:
    leaves = [as_leaf(v) for v in value]
    if not leaves:
        return np.zeros(0, np.float32)
    if any(x.dtype == object for x in leaves if isinstance(x, np.ndarray)):
        return stack(leaves)
    if all(isinstance(x, np.ndarray) for x in leaves):
        common = np.result_type(*{x.dtype for x in leaves})
        if {x.dtype.kind for x in leaves} > {"f"}:  # whole numbers beside others of a list
            common = np.result_type(*[x.dtype for x in leaves if x.dtype.kind in "fc"])
        return stack([x.astype(common, copy=False) for x in leaves])
    return stack(leaves)


def _array(value: np.ndarray) -> np.ndarray:
    kind = value.dtype.kind
    if kind in "US" or kind == "O":
        out = np.empty(value.shape, object)
        flat = value.reshape(-1)
        out.reshape(-1)[:] = [_text(v) for v in flat.tolist()] if flat.size else []
        return out
    if value.dtype not in BY_NUMPY:
        native = value.dtype.newbyteorder("=")
        if native not in BY_NUMPY:
            raise DTypeError(
                f"Pipeline: an array of {value.dtype} given; numbers, truth values and texts are "
                "elements of a pipeline. Convert it before"
            )
        value = value.astype(native)
    return value


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise DTypeError(
        f"Pipeline: a {type(value).__name__} given as a leaf of an element; tensors, arrays, "
        "numbers and texts, and tuples and dicts of them, are elements of a pipeline (lists are "
        "made to one array: their rows must have one shape; ragged ones cannot be elements)"
    )


def lower(element: Any) -> Any:
    """What a function of the program returned, as an element of arrays."""
    return map_leaves(as_leaf, element)


def lift(element: Any) -> Any:
    """An element as the program gets it."""
    return map_leaves(_lifted, element)


def _lifted(leaf: Any) -> Any:
    if leaf.__class__ is not np.ndarray:
        return leaf
    if leaf.dtype != object:
        return wrap(known(leaf))
    return leaf.item() if leaf.ndim == 0 else leaf


def arguments(element: Any) -> tuple:
    """What a function is called with: the parts of a tuple, or the one element."""
    value = lift(element)
    return value if type(value) is tuple else (value,)


def copied(element: Any) -> Any:
    """The same numbers in memory of their own: for an element that is given out again later."""
    return map_leaves(lambda x: x.copy() if isinstance(x, np.ndarray) else _clone(x), element)


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def stack(leaves: Sequence[Any]) -> Any:
    """One leaf with a new first dimension."""
    if all(x.__class__ is np.ndarray for x in leaves):
        if leaves[0].dtype == object:
            shapes = {x.shape for x in leaves}
            if len(shapes) > 1:
                raise ValueError("all input arrays must have the same shape")
            out = np.empty((len(leaves), *leaves[0].shape), object)
            for i, x in enumerate(leaves):
                out[i] = x.item() if x.ndim == 0 else x
            return out
        return np.stack(leaves)
    return stack_tensors([x if isinstance(x, Tensor) else wrap(known(x)) for x in leaves])


# --- bytes ----------------------------------------------------------------------------------------


def encode(element: Any) -> bytes:
    """``element`` as bytes that ``decode`` reads: data only, no code."""
    leaves: list[dict] = []
    data: list[bytes] = []
    tree = _told(element, leaves, data)
    head = json.dumps({"tree": tree, "leaves": leaves}).encode()
    return b"".join([_HEAD.pack(len(head)), head, *data])


def _told(tree: Any, leaves: list[dict], data: list[bytes]) -> Any:
    found = children(tree)
    if found is None:
        leaves.append(_leaf(tree, data))
        return len(leaves) - 1
    parts = [_told(part, leaves, data) for part in found[0]]
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {"dict": [[k, part] for k, part in zip(tree, parts, strict=True)]}
    if hasattr(tree, "_fields"):
        return {"named": [type(tree).__name__, list(tree._fields)], "parts": parts}
    return {"tuple": parts}


def _leaf(leaf: Any, data: list[bytes]) -> dict:
    if isinstance(leaf, Nested):
        inner = [encode(e) for e in leaf.packed()["elements"]]
        data.extend(inner)
        return {"nested": [len(e) for e in inner]}
    array = leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf
    if array.dtype == object:
        texts = array.reshape(-1).tolist()
        data.extend(texts)
        return {"texts": [len(t) for t in texts], "shape": list(array.shape)}
    data.append(np.ascontiguousarray(array).tobytes())
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def decode(data: bytes, nested: Callable[[list], Any] | None = None) -> Any:
    """The element of ``encode``; ``nested`` makes a pipeline of its elements."""
    try:
        (size,) = _HEAD.unpack_from(data)
        head = json.loads(bytes(data[_HEAD.size : _HEAD.size + size]))
        at, leaves = _HEAD.size + size, []
        for told in head["leaves"]:
            leaf, at = _read(told, data, at, nested)
            leaves.append(leaf)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
        return _rebuilt(head["tree"], leaves)
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise SerializationError(
            f"Pipeline: {len(data)} bytes given are no element: {error}; give what a pipeline wrote"
        ) from None


def _read(told: dict, data: bytes, at: int, nested: Any) -> tuple[Any, int]:
    if "nested" in told:
        parts = []
        for size in told["nested"]:
            parts.append(decode(data[at : at + size], nested))
            at += size
        return nested(parts), at
    shape = tuple(told["shape"])
    if "texts" in told:
        out = np.empty(len(told["texts"]), object)
        for i, size in enumerate(told["texts"]):
            out[i] = bytes(data[at : at + size])
            at += size
        return out.reshape(shape), at
    dtype = np.dtype(told["dtype"])
    count = int(np.prod(shape, dtype=np.int64))
    array = np.frombuffer(data, dtype, count, at).reshape(shape).copy()
    return array, at + count * dtype.itemsize


def _rebuilt(tree: Any, leaves: list) -> Any:
    if tree is None:
        return None
    if isinstance(tree, int):
        return leaves[tree]
    if "dict" in tree:
        return {key: _rebuilt(part, leaves) for key, part in tree["dict"]}
    if "named" in tree:
        name, fields = tree["named"]
        return _named(name, tuple(fields))(*[_rebuilt(part, leaves) for part in tree["parts"]])
    return tuple(_rebuilt(part, leaves) for part in tree["tuple"])


@functools.lru_cache
def _named(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)
