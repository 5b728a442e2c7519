"""``save`` and ``load`` of GGUF files, and what is stored in which type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...errors import ConfigError, SerializationError
from ..files import Mapped, write_file
from .blocks import KINDS, Kind, kind_of
from .layout import build, parse

_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # ``general.file_type``
# What llama.cpp keeps in float32 in any file.
_ALWAYS_F32 = ("_norm.weight", "position_embd.weight", "token_types.weight")


@dataclass
class GGUF:
    """A model as such a file has it: tensors and metadata by name; ``types``: how each tensor is
    stored, where that is known."""

    tensors: dict[str, Tensor]
    metadata: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def save(
    model: GGUF | Mapping[str, Any],
    path: str | os.PathLike,
    *,
    type: str | None = None,  # noqa: A002
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write ``model`` (or a dict of tensors, with ``metadata``) as a GGUF file, which llama.cpp
    and its relatives read. ``general.architecture`` says which architecture the tensors' names are
    of (see ``from_pretrained``).

    ``type``: ``"F32"``, ``"F16"``, ``"BF16"`` or ``"Q8_0"`` (8 bits with a scale for 32 numbers of
    a row) for matrices, as llama.cpp means it: vectors, norms and positions stay float32, and rows
    that are no whole blocks become F16. None: ``model.types``, else what each tensor is.
    A path is replaced in one step. ``ConfigError`` names what the format cannot hold.
    """
    if not isinstance(model, GGUF):
        model = GGUF(_tensors(model))
    arrays = {name: _array(name, t) for name, t in model.tensors.items()}
    kinds = {n: _kind(n, a, type, model.types.get(n)) for n, a in arrays.items()}
    about = {**model.metadata, **(metadata or {})}
    if type is not None:
        about["general.file_type"] = _FILE_TYPES.get(kind_of(type).name, 0)
    if any(k.block > 1 for k in kinds.values()):
        about.setdefault("general.quantization_version", 2)
    about = {"general.architecture": "unknown", **about}
    head, padding = build(about, {n: (kinds[n], a.shape) for n, a in arrays.items()})
    size = sum(kinds[n].num_bytes(a.shape) for n, a in arrays.items())
    rows = zip(arrays.items(), padding, strict=True)
    stored = (part for (n, a), pad in rows for part in (kinds[n].bytes(a), bytes(pad)))
    # One tensor at a time: those of a large model have no room beside it.
    write_file(os.fspath(path), chain([head], stored), len(head) + size + sum(padding))


def load(path: str | os.PathLike) -> GGUF:
    """Read a GGUF file. Tensors that are not quantized are views of the mapped file; the others
    become float32. ``SerializationError`` names what is damaged, hostile or of an unknown type."""
    where = f"gguf: {os.fspath(path)}"
    with open(path, "rb", buffering=0) as file:
        mapped = Mapped(file.fileno(), os.fstat(file.fileno()).st_size)
    metadata, entries = parse(mapped.whole(b"").data, where)
    out = GGUF({}, metadata)
    for e in entries:
        out.tensors[e.name] = wrap(e.kind.array(mapped.piece(e.begin, e.end - e.begin), e.shape))
        out.types[e.name] = e.kind.name
    return out


def _tensors(model: Any) -> dict[str, Any]:
    state = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"gguf: {state.__class__.__name__} given; a dict of tensors, a module or what load "
            "returned is needed"
        )
    return dict(state)


def _array(name: object, value: Any) -> np.ndarray:
    if not isinstance(name, str):
        raise ConfigError(f"gguf: the key {name!r} is no text; tensors need names")
    if hasattr(value, "full_tensor"):  # it lies on several ranks
        value = value.full_tensor()
    if isinstance(value, Tensor):
        if value.device.type == "meta":
            raise SerializationError(f"gguf: {name!r} is on the meta device: no data")
        value = value.detach().cpu().array
    if not isinstance(value, np.ndarray):
        raise ConfigError(f"gguf: {name!r} is {value.__class__.__name__}; a tensor is needed")
    return value


def _kind(name: str, array: np.ndarray, wanted: str | None, known: str | None) -> Kind:
    plain = next((k for k in KINDS.values() if k.block == 1 and _same(k, array.dtype)), None)
    if plain is None:
        raise ConfigError(
            f"gguf: {name!r} is {array.dtype}; the format has no such type, convert it first"
        )
    if array.dtype.kind in "iu":
        return plain
    if wanted is None:
        found = kind_of(known) if known is not None else plain
        return found if found.pack is not None and found.fits(array.shape) else KINDS["F32"]
    if array.ndim < 2 or not name.endswith(".weight") or name.endswith(_ALWAYS_F32):
        return KINDS["F32"]
    kind = kind_of(wanted)
    return kind if kind.fits(array.shape) else KINDS["F16"]


def _same(kind: Kind, dtype: np.dtype) -> bool:
    return kind.unpack(np.empty(0, np.uint8)).dtype == dtype
