"""A value as leaves: each with its path in the value, a hash, and what a reader is shown.

Equal values have equal hashes in all processes, and others differ: types count (1, 1.0 and True are
three values), so do signs of zeros; every nan equals every other one. The order of a dict's and a
set's elements does not count. Of tensors count type, shape and elements, not where they lie.

Of a DTensor count type, shape, placements and mesh, and this rank's part where all ranks of the
group hold the same part. Knows values and ranks; no groups.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import os
import random
import struct
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.llvm.kernels.digest import Digest, digest
from ...core.random import Generator
from ...core.tensor import Tensor
from ...core.types.device import device
from ...core.types.dtypes import dtype
from ...core.types.memory_format import memory_format
from ...errors import ConfigError
from ...nn import Module
from ..tensor.placements import Replicate
from ..tensor.spread import Spread

_DEPTH = 200
_SHOWN = 60  # characters
_FEW = 6  # elements that are shown
_RUN = 16  # numbers or texts of a long sequence are one leaf
_SIMPLE = frozenset({int, float, bool, str, bytes, type(None)})  # which their repr tells apart
_DOUBLE = struct.Struct("<d")
_NAN = _DOUBLE.pack(float("nan"))


class Leaf(NamedTuple):
    """A part of a value that has no parts. ``told``: what it is, for readers; ``number``: its value
    where it is one real number; ``stats``: of an array's elements; ``site``: the line that it comes
    from, where that is not the whole value's."""

    path: str
    hash: int
    told: str
    number: float | None = None
    stats: Digest | None = None
    site: str = ""


def leaves(
    value: object, ranks: Sequence[int] = (), now: Mapping[int, Tensor] | None = None
) -> list[Leaf]:
    """The leaves of ``value``, in an order of their own. ``ranks``: of the group on which it is to
    be equal. ``now``: by id of a tensor in it, the one that stands for it. Raises ``ConfigError``
    for what does not have the same hash in every process."""
    walk = _Walk(ranks)
    walk.now = now or {}
    walk.add("", value, ())
    return walk.found


def combined(parts: Iterable[Leaf]) -> int:
    """One hash of several leaves, never 0."""
    total = blake2b(digest_size=8)
    for leaf in parts:
        total.update(leaf.path.encode("utf-8", "surrogatepass"))
        total.update(b"\0" + leaf.hash.to_bytes(8, "little"))
    return int.from_bytes(total.digest(), "little") or 1


def hashed(kind: str, data: bytes) -> int:
    """64 bits of bytes that mean something of this kind."""
    return int.from_bytes(blake2b(kind.encode() + b"\0" + data, digest_size=8).digest(), "little")


def clipped(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 3 :]}"


class _Walk:
    now: Mapping[int, Tensor] = {}

    def __init__(self, ranks: Sequence[int]) -> None:
        self.found: list[Leaf] = []
        self._ranks = ranks

    def put(
        self, path: str, kind: str, data: bytes, told: str, number: float | None = None
    ) -> None:
        self.found.append(Leaf(path, hashed(kind, data), clipped(told), number))

    def add(self, path: str, value: Any, above: tuple[int, ...]) -> None:
        """``above``: the containers around the value."""
        how = _EXACT.get(type(value))
        if how is None:
            how = next((how for kind, how in _KINDS if isinstance(value, kind)), _other)
        how(self, path, value, above)

    def inside(self, path: str, value: object, above: tuple[int, ...]) -> tuple[int, ...]:
        """Going into a container."""
        if id(value) in above:
            raise ConfigError(
                f"same: {_where(path)} is a {type(value).__name__} that contains itself; a value "
                "without circles is needed"
            )
        if len(above) >= _DEPTH:
            raise ConfigError(f"same: {_where(path)} lies {_DEPTH} containers deep; give a part")
        return (*above, id(value))

    def array(self, path: str, array: np.ndarray, kind: str = "array") -> None:
        if array.dtype.hasobject:
            _sequence(self, path, array.tolist(), ())
            return
        found = digest(array)
        if found.nans:  # however their bits are
            found = digest(_one_nan(array))
        shape = ", ".join(map(str, array.shape))
        data = f"{array.dtype.name} {shape} ".encode() + found.hash.to_bytes(8, "little")
        told, number = f"{array.dtype.name}[{shape}]", None
        if 0 < array.size <= _FEW:
            told += f" {array.tolist()}"
            if array.size == 1 and array.dtype.kind in "biuf":
                number = float(array.reshape(())[()])
        self.found.append(Leaf(path, hashed(kind, data), clipped(told, 2 * _SHOWN), number, found))

    def spread(self, path: str, array: Spread, above: tuple[int, ...]) -> None:
        mesh = array.mesh
        about = f"{array.dtype} {list(array.shape)} {array.placements} mesh {mesh.ranks.tolist()}"
        self.put(path, "DTensor", about.encode(), f"DTensor {about}")
        if _is_alike(mesh.ranks, array.placements, self._ranks):
            self.add(f"{path}.local", array.local, above)


def _where(path: str) -> str:
    return f"the part {path}" if path else "the value"


def _one_nan(array: np.ndarray) -> np.ndarray:
    real = np.ascontiguousarray(array)
    if real.dtype.kind == "c":
        real = real.reshape(-1).view(f"f{real.dtype.itemsize // 2}")
    return np.where(np.isnan(real), np.array(np.nan, real.dtype), real)


def _is_alike(mesh: np.ndarray, placements: Sequence[Any], ranks: Sequence[int]) -> bool:
    """Do all ``ranks`` hold the same part of what lies so on the ranks of a mesh?"""
    cut = [axis for axis, p in enumerate(placements) if not isinstance(p, Replicate)]
    places = [np.argwhere(mesh == rank) for rank in ranks]
    if any(len(place) != 1 for place in places):
        return not cut  # of ranks that are not in the mesh nobody knows
    return len({tuple(place[0][cut]) for place in places}) <= 1


# --- kinds of values ------------------------------------------------------------------------------

How = Callable[[_Walk, str, Any, tuple[int, ...]], None]


def _plain(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    text = repr(value)
    number = None
    if isinstance(value, (bool, int)) and abs(value) < 1 << 1000:
        number = float(value)
    walk.put(path, type(value).__name__, text.encode(), text, number)


def _float(walk: _Walk, path: str, value: float, above: tuple[int, ...]) -> None:
    walk.put(path, "float", _bits(value), repr(float(value)), float(value))


def _bits(value: float) -> bytes:
    return _NAN if value != value else _DOUBLE.pack(value)


def _complex(walk: _Walk, path: str, value: complex, above: tuple[int, ...]) -> None:
    walk.put(path, "complex", _bits(value.real) + _bits(value.imag), repr(value))


def _text(walk: _Walk, path: str, value: str, above: tuple[int, ...]) -> None:
    walk.put(path, "str", _encoded(value), repr(str(value)))


def _bytes(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    data = bytes(value)
    walk.put(path, "bytes", data, f"{len(data)} bytes {data[:16].hex()}")


def _enum(walk: _Walk, path: str, value: enum.Enum, above: tuple[int, ...]) -> None:
    walk.put(path, "enum", f"{type(value).__qualname__}.{value.name}".encode(), str(value))


def _tensor(walk: _Walk, path: str, value: Tensor, above: tuple[int, ...]) -> None:
    value = walk.now.get(id(value), value)
    array: Any = value.array
    if isinstance(array, Spread):
        walk.spread(path, array, above)
    elif isinstance(array, np.ndarray):
        walk.array(path, array)
    elif isinstance(array, ArrayKind):
        _kind(walk, path, value, array)
    else:
        raise ConfigError(
            f"same: {_where(path)} is a {type(value).__name__} without numbers, inside a function "
            "that is being compiled or transformed; call same outside of it, or let it run eagerly "
            "(dt.compiler.disable)"
        )


def _kind(walk: _Walk, path: str, value: Tensor, array: ArrayKind) -> None:
    """Arrays of devices, of the meta device, and sparse ones."""
    whole: Any = array.whole() if array.has_data and hasattr(array, "whole") else None
    if isinstance(whole, np.ndarray):
        walk.array(path, whole)
    elif value.layout is not None and "sparse" in str(value.layout):
        walk.put(path, "layout", str(value.layout).encode(), str(value.layout))
        walk.array(path, np.asarray(value.detach().to_dense().numpy()))
    else:
        about = f"{array.dtype} {list(array.shape)}"
        walk.put(path, "meta", about.encode(), f"{about} without numbers")


def _array(walk: _Walk, path: str, value: np.ndarray, above: tuple[int, ...]) -> None:
    walk.array(path, np.asarray(value))


def _masked(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    """What a mask hides does not count."""
    mask = np.ma.getmaskarray(value)
    walk.put(path, "masked", b"", "a masked array")
    walk.array(f"{path}.data", value.filled(np.zeros((), value.dtype)[()]))
    walk.array(f"{path}.mask", mask)


def _scalar(walk: _Walk, path: str, value: np.generic, above: tuple[int, ...]) -> None:
    walk.array(path, np.asarray(value), "scalar")


def _mapping(walk: _Walk, path: str, value: Mapping, above: tuple[int, ...]) -> None:
    within = walk.inside(path, value, above)
    rows = sorted([(_key(key), key) for key in value], key=lambda row: row[0])
    walk.put(path, "dict", str(len(rows)).encode(), f"a dict of {len(rows)}")
    for name, key in rows:
        walk.add(f"{path}[{name}]", value[key], within)


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        return f"{type(key).__qualname__}.{key.name}"
    if type(key) in (str, int, float, bool, bytes, type(None)):
        return repr(key)
    return f"{type(key).__name__} {combined(leaves(key)):016x}"


def _sequence(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    within = walk.inside(path, value, above)
    kind = type(value).__name__
    walk.put(path, kind, str(len(value)).encode(), f"a {kind} of {len(value)}")
    if len(value) > _RUN and isinstance(value, (list, tuple, range)) and _is_simple(value):
        for i in range(0, len(value), _RUN):
            run = repr([*value[i : i + _RUN]])
            walk.found.append(
                Leaf(f"{path}[{i}:{i + _RUN}]", hashed("run", _encoded(run)), clipped(run, 400))
            )
        return
    for i, part in enumerate(value):
        walk.add(f"{path}[{i}]", part, within)


def _is_simple(value: Iterable) -> bool:
    return set(map(type, value)) <= _SIMPLE


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _set(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    within = walk.inside(path, value, above)
    if _is_simple(value):
        text = ", ".join(sorted(map(repr, value)))
        walk.put(path, type(value).__name__, _encoded(text), f"a set of {len(value)} [{text}]")
        return
    hashes = []
    for part in value:
        inner = _Walk(walk._ranks)
        inner.add(path, part, within)
        hashes.append(combined(inner.found))
    data = b"".join(h.to_bytes(8, "little") for h in sorted(hashes))
    walk.put(path, type(value).__name__, data, f"a set of {len(hashes)} {sorted(map(repr, value))}")


def _fields(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    within = walk.inside(path, value, above)
    kind = type(value).__qualname__
    walk.put(path, "dataclass", kind.encode(), f"a {kind}")
    for field in dataclasses.fields(value):
        walk.add(f"{path}.{field.name}", getattr(value, field.name), within)


def _module(walk: _Walk, path: str, value: Module, above: tuple[int, ...]) -> None:
    within = walk.inside(path, value, above)
    walk.put(path, "module", type(value).__name__.encode(), f"a {type(value).__name__}")
    for name, p in (*value.named_parameters(), *value.named_buffers()):
        walk.add(f"{path}.{name}", p, within)


def _generator(walk: _Walk, path: str, value: Generator, above: tuple[int, ...]) -> None:
    walk.put(path, "Generator", value.get_state().numpy().tobytes(),
             f"a Generator that was seeded with {value.initial_seed()}")  # fmt: skip


def _random(walk: _Walk, path: str, value: random.Random, above: tuple[int, ...]) -> None:
    walk.put(path, "random.Random", repr(value.getstate()).encode(), "the state of random.Random")


def _numpy_random(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    bits = getattr(value, "bit_generator", value)
    state = bits.state if hasattr(bits, "state") else value.get_state(legacy=False)
    walk.put(path, type(value).__name__, b"", f"a {type(value).__name__}")
    walk.add(f"{path}.state", state, walk.inside(path, value, above))


def _named(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    name = f"{value.__module__}.{value.__qualname__}"
    if "<" in name:
        raise ConfigError(
            f"same: {_where(path)} is the function {name}, which has no name of its own; give one "
            "that is defined at the top of a module, or what it depends on"
        )
    walk.put(path, "name", name.encode(), name)


def _path(walk: _Walk, path: str, value: os.PathLike, above: tuple[int, ...]) -> None:
    text = os.fspath(value)
    walk.put(path, "path", os.fsencode(text), str(text))


def _shown(walk: _Walk, path: str, value: object, above: tuple[int, ...]) -> None:
    """What is all in its ``repr``."""
    walk.put(path, type(value).__name__, repr(value).encode(), repr(value))


def _other(walk: _Walk, path: str, value: Any, above: tuple[int, ...]) -> None:
    if dataclasses.is_dataclass(value):
        _fields(walk, path, value, above)
        return
    state = getattr(value, "state_dict", None)
    if callable(state):
        within = walk.inside(path, value, above)
        walk.put(path, "state", type(value).__name__.encode(), f"a {type(value).__name__}")
        walk.add(f"{path}.state_dict()", state(), within)
        return
    raise ConfigError(
        f"same: {_where(path)} is a {type(value).__module__}.{type(value).__qualname__}, of which "
        "nobody knows when it is equal on two ranks; give tensors, arrays, numbers, texts, "
        "containers of them, dataclasses, modules, generators, or something that has state_dict()"
    )


_EXACT: dict[type, How] = {
    type(None): _plain, bool: _plain, int: _plain, float: _float, complex: _complex, str: _text,
    dict: _mapping, list: _sequence, tuple: _sequence, Tensor: _tensor, np.ndarray: _array,
}  # fmt: skip
_KINDS: tuple[tuple[Any, How], ...] = (
    (enum.Enum, _enum),
    (Tensor, _tensor),
    (np.ma.MaskedArray, _masked),
    (np.ndarray, _array),
    (np.generic, _scalar),
    (Module, _module),
    (Generator, _generator),
    (Mapping, _mapping),
    ((list, tuple, deque, range), _sequence),
    ((set, frozenset), _set),
    (str, _text),
    ((bytes, bytearray, memoryview), _bytes),
    (int, _plain),
    (float, _float),
    (complex, _complex),
    (random.Random, _random),
    ((np.random.Generator, np.random.BitGenerator, np.random.RandomState), _numpy_random),
    ((type, types.FunctionType, types.BuiltinFunctionType), _named),
    (os.PathLike, _path),
    ((np.dtype, dtype, device, memory_format), _shown),
    ((datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo), _shown),
    ((decimal.Decimal, fractions.Fraction, uuid.UUID, slice, type(Ellipsis)), _shown),
)
