"""``save``, ``load`` and ``inspect``: nested values with tensors, as safetensors files.

A flat dict of tensors gives a file that other programs read under the same names, and their files
load as flat dicts. For everything else (nested containers, numbers, texts, tied tensors, objects
with the names of their classes) a description stands in the file's metadata. Nothing is ever
unpickled.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from mmap import MAP_SHARED
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray, Located
from ..backends.llvm.checksum import BLOCK, crc32c_blocks
from ..backends.null import NullArray
from ..core import Tensor, wrap
from ..core.types.device import device, located, usable
from ..errors import ConfigError, DeviceError, SerializationError
from . import line
from .decoding import decode
from .files import Mapped, Stream, total, write_file, write_stream
from .layout import (
    HEADER_CAP,
    KINDS,
    NAMES,
    Entry,
    Header,
    build,
    check_items,
    header_length,
    load_json,
    parse,
)
from .objects import Known, names_in, parameter
from .options import get_crc32_options, get_default_mmap_options
from .pytorch.reading import Reader, is_archive, is_old
from .pytorch.writing import archive
from .sharing import View, plan, unique
from .structure import encode

_STRUCTURE = "disttrain"  # the metadata's key for what is no plain tensor
_VERSION = 1
_INLINE = 1 << 16  # a longer description goes with the data, where nothing limits it


# --- saving --------------------------------------------------------------------------------------


def save(obj: object, f: object, *, format: str = "safetensors") -> None:  # noqa: A002
    """Save ``obj`` to the path or writable binary file ``f`` in the safetensors format; with
    ``format="torch"`` in PyTorch's, which its ``torch.load(f, weights_only=True)`` reads: then
    ``obj`` may be tensors, parameters, numbers, texts, bytes, shapes, dtypes and devices, and
    dicts, lists, tuples and sets of these.

    ``obj`` may be nested dicts, lists, tuples, sets, tensors, numpy arrays and scalars, numbers,
    texts, bytes, None, shapes, dtypes, devices and paths; and modules, optimizers and other objects
    that are made of those, together with the names of their classes (no code; ``load`` needs to be
    told that it may import them, so prefer ``state_dict()``). For anything else
    ``SerializationError`` says where it is and what to save in its place. Tensors that share memory
    share it again when loaded. A path is replaced in one step once all is on the disk;
    ``WriteError`` (an ``OSError``) when that fails, with the old file untouched.
    """
    if format not in ("safetensors", "torch"):
        raise ConfigError(f"save: format={format!r} given; needed 'safetensors' or 'torch'")
    parts = _parts(obj) if format == "safetensors" else archive(obj, parameter())
    if isinstance(f, (str, os.PathLike)):
        write_file(os.fsdecode(f), parts, total(parts))
    elif hasattr(f, "write"):
        write_stream(f, parts)
    else:
        raise ConfigError(f"save: {type(f).__name__} given; a path or a binary file is needed")


def _parts(obj: object) -> list[Any]:
    """The file of ``obj``: the header, then the bytes of every stored tensor."""
    encoded = encode(obj)
    what = plan(encoded.arrays)
    stored, views = what.stored, {n: dataclasses.asdict(v) for n, v in what.views.items()}
    about: dict[str, Any] = {"version": _VERSION, "tree": encoded.tree, "views": views}
    text = json.dumps(about, separators=(",", ":"), allow_nan=False)
    check_items(text.encode(), "save: obj has")
    if len(text) > _INLINE:
        name = unique("~structure", encoded.arrays)
        stored = {**stored, name: np.frombuffer(text.encode(), np.uint8)}
        text = json.dumps({"version": _VERSION, "in": name})
    return file_of(stored, {_STRUCTURE: text})


def file_of(stored: dict[str, np.ndarray], metadata: dict[str, str]) -> list[Any]:
    """The parts of a file of these arrays under these names."""
    order = sorted(stored, key=lambda n: -min(stored[n].itemsize, 8))  # keeps all aligned
    entries, data, at = [], [], 0
    for name in order:
        entry, raw = _stored(name, stored[name], at)
        at = entry.end
        entries.append(entry)
        data.append(raw)
    sums = [int(s) for raw in data for s in crc32c_blocks(raw)] if get_crc32_options() else None
    header = build(entries, metadata, sums)
    if len(header) - 8 > HEADER_CAP:
        raise SerializationError(
            f"save: {len(entries)} tensors with long names need a header of {len(header)} bytes; "
            f"at most {HEADER_CAP} can be loaded again. Save in several files"
        )
    check_items(header, f"save: {len(entries)} tensors: the header has")  # as ``load`` does
    return [header, *data]


def _stored(name: str, array: np.ndarray, at: int) -> tuple[Entry, np.ndarray]:
    """The entry of a stored array, and its bytes."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    raw = array.reshape(-1).view(np.uint8)
    shape: tuple[int, ...] = array.shape
    if array.dtype not in NAMES:  # complex128
        shape, array = (*shape, 2), array.reshape(-1).view(np.float64)
    return Entry(name, NAMES[array.dtype], shape, at, at + raw.size), raw


# --- loading -------------------------------------------------------------------------------------


def load(
    f: object,
    map_location: object = None,
    weights_only: bool = True,
    mmap: bool | None = None,
    verify: bool | None = None,
    classes: Sequence[Any] = (),
) -> Any:
    """Load what ``save``, another safetensors writer or PyTorch's ``torch.save`` wrote to the path
    or binary file ``f``.

    A path is mapped: tensors are views of the file and cost nothing before they are used; what is
    written to them stays in this process. ``mmap=False`` reads it into memory instead. Checksums
    are compared unless ``mmap=True`` or ``verify=False`` asks for speed (a file of another writer
    has none). ``map_location="meta"`` gives shapes without data.

    A file with objects names their classes. Those in ``classes`` (and those that
    ``add_safe_globals`` allows) are made; any other is refused by a ``SerializationError`` that
    lists it. ``weights_only=False`` states trust in whoever wrote the file: what it names is
    imported. Nothing is ever unpickled, either way: of PyTorch's files the tensors, numbers, texts
    and containers that its ``weights_only=True`` takes are read from the text of the pickle.

    Raises ``SerializationError`` before any tensor is handed out when the file is damaged, hostile
    or of another format.
    """
    place, known = _placement(map_location), Known(classes, not weights_only)
    check = not mmap if verify is None else verify
    if hasattr(f, "read"):
        where = f"load: {getattr(f, 'name', type(f).__name__)}"
        if isinstance(f, io.BytesIO) and line.is_line(f.getbuffer()[f.tell() :]):
            return line.read(f.read(), where, known)  # what planners of checkpoints are given
        return _value(Stream(f, where, False), where, check, place, known)
    if not isinstance(f, (str, os.PathLike)):
        raise ConfigError(f"load: {type(f).__name__} given; a path or a binary file is needed")
    where = f"load: {os.fsdecode(f)}"
    shared = bool(mmap) and get_default_mmap_options() == MAP_SHARED
    with open(f, "r+b" if shared else "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if mmap is False or not stat.S_ISREG(status.st_mode):
            return _value(Stream(file, where), where, check, place, known)
        mapped = Mapped(file.fileno(), status.st_size, shared)
        return _value(mapped, where, check, place, known)


def _value(source: Mapped | Stream, where: str, verify: bool, place: Place, known: Known) -> Any:
    """The value in a file, of whichever format."""
    first = bytes(source.piece(0, 16 if source.size is None else min(16, source.size)))
    try:
        if is_old(first):
            return Reader(source.whole(first), where, place, known, verify).old()
        if is_archive(first):
            reader = Reader(source.whole(first), where, place, known, verify)
            if (found := reader.archive()) is not reader:
                return found
        return _File(source, where, verify, first).value(place, known)
    except _CallerFailed as failed:
        raise failed.error from None


def inspect(f: Any) -> Header:
    """What the header of the file ``f`` (a path) says: names, types, shapes, metadata. The header
    is checked; no tensor is read."""
    where = f"inspect: {os.fsdecode(f)}"
    with open(f, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return _File(Mapped(file.fileno(), size), where, False).header


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names of classes and functions that the file ``f`` needs and that are not allowed."""
    where = f"get_unsafe_globals_in_checkpoint: {os.fsdecode(f)}"
    with open(f, "rb", buffering=0) as file:
        source, known = Mapped(file.fileno(), os.fstat(file.fileno()).st_size), Known((), False)
        if is_archive(bytes(source.piece(0, 4))):
            return Reader(source.whole(b""), where, _as_saved, known, True).names()
        tree = _File(source, where, True).tree()
    return sorted({n.replace(":", ".") for n in names_in(tree) if n not in known})


Place = Callable[[Tensor, str], Any]  # (on the host, where it was saved) -> a device, or a Tensor


def _placement(map_location: Any) -> Place:
    """How to bring a tensor to where ``map_location`` says: a device, a dict, or a function."""
    if map_location is None:
        return _as_saved
    if callable(map_location) and not isinstance(map_location, (str, device)):
        return lambda t, location: _called(map_location, t, location)
    if isinstance(map_location, dict):
        names = {str(k): v for k, v in map_location.items()}
        return lambda t, location: (
            usable(names[location]) if location in names else _as_saved(t, location)
        )
    where = usable(map_location)
    return lambda t, location: where


def _as_saved(t: Tensor, location: str) -> device:
    try:
        return usable(location)
    except DeviceError as error:
        raise DeviceError(
            f"load: Attempting to deserialize a tensor of shape {list(t.shape)} on {location}, "
            f"which cannot be used here: {str(error).rstrip('.')}. Pass map_location='cpu' to have "
            "it on the host"
        ) from None


def _called(function: Callable, tensor: Tensor, location: str) -> Any:
    """PyTorch's form: ``function(storage, location)``; None leaves the tensor where it was."""
    try:
        moved = function(tensor, location)
    except Exception as error:
        raise _CallerFailed(error) from error
    if moved is None:
        return _as_saved(tensor, location)
    if not isinstance(moved, Tensor):
        raise _CallerFailed(
            ConfigError(
                f"load: map_location gave {moved!r} for what was saved on {location}; the storage "
                "that it was given is needed, moved (storage.cpu(), storage.cuda(1)) or as it is, "
                "or None"
            )
        )
    return moved


class _CallerFailed(Exception):
    """An error of the program's own function, which says nothing about the file."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _File:
    """One file that is being loaded."""

    def __init__(
        self, source: Mapped | Stream, where: str, verify: bool, first: bytes | None = None
    ) -> None:
        """``first``: the first 16 bytes (or all, of a shorter file) where they were read."""
        self.source, self.where, self.verify = source, where, verify
        if first is None:
            size = source.size
            first = bytes(source.piece(0, 16 if size is None else min(16, size)))
        length = header_length(first, source.size, where)
        rest = source.piece(len(first), 8 + length - len(first)) if 8 + length > 16 else b""
        raw = (first + bytes(rest))[: 8 + length]
        known = None if source.size is None else source.size - len(raw)
        alone = not isinstance(source, Stream) or source.alone
        self.header = parse(raw, known, where, alone)
        self.raw: dict[str, np.ndarray] = {}
        self.made: dict[tuple[str, str], Any] = {}
        self.views: dict[str, View] = {}
        self.uploaded: dict[tuple, DeviceArray] = {}  # those on accelerators
        self.owners: set[str] = set()  # stored tensors that views lie in

    def value(self, place: Place, known: Known) -> Any:
        """The saved value."""
        tree = self.tree()
        if tree is None and _STRUCTURE not in self.header.metadata:
            return {name: self._tensor(place, name, "cpu") for name in self.header.entries}
        return decode(tree, functools.partial(self._give, place), self.where, known)

    def tree(self) -> Any:
        """The description of the value; None for a file of another writer. The bytes of all
        tensors are at hand then."""
        for entry in sorted(self.header.entries.values(), key=lambda e: e.begin):
            self.raw[entry.name] = self._piece(entry)
        if _STRUCTURE not in self.header.metadata:
            return None
        about = self._about(self.header.metadata[_STRUCTURE])
        for name, told in _dict(about.get("views"), self.where).items():
            self.views[name] = self._view(name, told)
        return about.get("tree")

    def _piece(self, entry: Entry) -> np.ndarray:
        """The bytes of a stored tensor, aligned, checked."""
        raw = self.source.piece(self.header.start + entry.begin, entry.end - entry.begin)
        at = f"{self.where}: tensor {entry.name!r}: offset {entry.begin}"
        if self.verify:
            self._check(raw, entry, at)
        if entry.code == "BOOL" and raw.size and raw.max() > 1:
            raise SerializationError(f"{at}: a truth value is {raw.max()}; 0 and 1 are allowed")
        aligned = raw.__array_interface__["data"][0] % entry.dtype.itemsize == 0
        return raw if aligned or not raw.size else raw.copy()

    def _check(self, raw: np.ndarray, entry: Entry, at: str) -> None:
        """Compare the checksums of a stored tensor that the file has."""
        blocks, begin, end = self.header.blocks.get(entry.name), entry.begin, entry.end
        if blocks is not None:
            wrong = np.flatnonzero(crc32c_blocks(raw) != np.array(blocks, np.uint32))
            if not wrong.size:
                return
            begin += int(wrong[0]) * BLOCK
            end = min(begin + BLOCK, end)
        elif zlib.crc32(raw.data) == self.header.sums.get(entry.name, zlib.crc32(raw.data)):
            return
        raise SerializationError(
            f"{at}: the bytes from {begin} up to {end} do not fit their checksum. The file is "
            "damaged; load a copy that is whole"
        )

    def _about(self, text: str) -> dict[str, Any]:
        where = f"{self.where}: structure"
        about = _dict(load_json(text.encode(), where), where)
        if about.get("version") != _VERSION:
            raise SerializationError(
                f"{where}: version {about.get('version')!r:.60}; this program reads {_VERSION}. "
                "Load it with a newer version of disttrain"
            )
        name = about.get("in")
        if name is None:
            return about
        if name not in self.raw:
            raise SerializationError(f"{where}: tensor {name!r:.60} is missing")
        return _dict(load_json(self.raw[name].tobytes(), where), where)

    def _view(self, name: str, told: dict | list) -> View:
        """A view, proved to lie within its stored tensor."""
        where = f"{self.where}: view {name!r:.60}"
        told = _dict(told, where)
        try:
            view = View(told["of"], told["code"], tuple(told["shape"]), told["offset"],
                        tuple(told["strides"]))  # fmt: skip
            raw, itemsize = self.raw[view.of], KINDS[view.code].itemsize
        except (KeyError, TypeError) as error:
            raise SerializationError(
                f"{where}: incomplete, or of an unknown tensor: {error}"
            ) from None
        numbers = (view.offset, *view.shape, *view.strides)
        fits = len(view.shape) == len(view.strides) <= 64 and min(view.shape, default=0) >= 0
        if not fits or not all(type(n) is int and abs(n) < 1 << 62 for n in numbers):
            raise SerializationError(f"{where}: shape {view.shape}, strides {view.strides}")
        steps = [s * (d - 1) for d, s in zip(view.shape, view.strides, strict=True) if d]
        low = view.offset + sum(s for s in steps if s < 0)
        high = view.offset + sum(s for s in steps if s > 0) + itemsize
        if 0 not in view.shape and (low < 0 or high > raw.size):
            raise SerializationError(
                f"{where}: reaches from byte {low} to {high} of {view.of!r}, which has {raw.size}"
            )
        if raw.size and raw.__array_interface__["data"][0] % 16:
            self.raw[view.of] = raw.copy()
        self.owners.add(view.of)
        return view

    def _array(self, name: str) -> np.ndarray:
        view = self.views.get(name)
        if view is None:
            entry = self.header.entries.get(name)
            if entry is None:
                raise SerializationError(f"tensor {name!r:.60} is missing")
            return self.raw[name].view(entry.dtype).reshape(entry.shape)
        kind = KINDS[view.code]
        if 0 in view.shape:
            return np.empty(view.shape, kind)
        raw = self.raw[view.of]
        if kind == np.bool_ and raw.max() > 1:
            raise SerializationError(f"view {name!r:.60}: truth values other than 0 and 1")
        return np.ndarray(view.shape, kind, raw, view.offset, view.strides)

    def _give(self, place: Place, kind: str, name: str, location: str = "cpu") -> Any:
        """The array or tensor ``name``; the same object each time, so what was one stays one."""
        if (kind, name) not in self.made:
            plain = kind == "array"
            self.made[kind, name] = (
                self._array(name) if plain else self._tensor(place, name, location)
            )
            if kind == "leaf":
                self.made[kind, name].requires_grad_()
        return self.made[kind, name]

    def _tensor(self, place: Place, name: str, location: str) -> Tensor:
        """A tensor; those over one stored piece share memory and their version count."""
        array = self._array(name)
        where = place(wrap(array), location)
        if isinstance(where, Tensor):
            return where
        there = located(where)
        if there is None:
            out = wrap(array if where.type == "cpu" else NullArray(array.shape, array.dtype))
        else:
            out = wrap(self._moved(name, array, there))
        view = self.views.get(name)
        if view is not None or name in self.owners:
            base = self.made.setdefault((str(where), name if view is None else view.of), out)
            out._st = base.storage_cell()
            out._gen = out._st.gen
        return out

    def _moved(self, name: str, array: np.ndarray, there: Located) -> DeviceArray:
        """A stored tensor on an accelerator; the piece that several lie in travels once."""
        view = self.views.get(name)
        owner = name if view is None else view.of
        if owner not in self.owners or not array.size:
            return there.take(array)
        key = owner, there.index
        if key not in self.uploaded:
            self.uploaded[key] = there.take(np.ascontiguousarray(self.raw[owner]))
        return self.uploaded[key].reseen(
            array.shape, array.dtype, 0 if view is None else view.offset, array.strides
        )


def _dict(value: object, where: str) -> dict:
    if type(value) is not dict:
        raise SerializationError(
            f"{where}: structure: names and values are needed, {value!r:.60} found"
        )
    return value
