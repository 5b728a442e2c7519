"""Files of models: decoded, with the numbers that lie in files beside them.

Such files are looked for in the model's folder and nowhere else, also where links lead.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

from ...errors import SerializationError
from .graph import Limits

_FILE_BYTES = 1 << 31  # what the format's decoder takes


def decoded(source: Any, limits: Limits) -> tuple[ModelProto, str]:
    """The message of a path, of bytes, of an open file or of a message; and what to call it."""
    if isinstance(source, ModelProto):
        model, name, folder = source, "model", None
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model, name, folder = _parsed(bytes(source), "model"), "model", None
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", "model"))
        model, folder = _parsed(source.read(), name), None
    else:
        path = Path(os.fspath(source))
        model, name, folder = _parsed(_bytes(path), path.name), path.name, path.parent
    if not model.HasField("graph"):
        raise SerializationError(f"{name}: no model in ONNX's format: it has no graph")
    if any(_is_outside(t) for t in _tensors(model)):
        if model is source:  # the caller's stays as it is
            model = ModelProto()
            model.CopyFrom(source)
        for tensor in _tensors(model):
            if _is_outside(tensor):
                _fetch(tensor, folder, limits, name)
    return model, name


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise SerializationError(f"{path}: a folder; needed is a file in ONNX's format")
        if path.stat().st_size >= _FILE_BYTES:
            raise SerializationError(f"{path}: 2 GB or more, which ONNX's format cannot be")
        return path.read_bytes()
    except OSError as error:
        raise SerializationError(f"{path}: cannot be read ({error.strerror})") from error


def _parsed(data: bytes, name: str) -> ModelProto:
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, TypeError, ValueError) as error:
        raise SerializationError(f"{name}: no model in ONNX's format ({error})") from None
    return model


def _is_outside(tensor: TensorProto) -> bool:
    return tensor.HasField("data_location") and tensor.data_location == TensorProto.EXTERNAL


def _tensors(model: ModelProto) -> list[TensorProto]:
    """Every message of numbers in a model."""
    found: list[TensorProto] = []
    graphs: list[GraphProto] = [model.graph]
    nodes = [n for f in model.functions for n in f.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            found += graph.initializer
            nodes += graph.node
            continue
        for a in nodes.pop().attribute:
            found += a.tensors
            if a.type == AttributeProto.TENSOR:
                found.append(a.t)
            if a.type == AttributeProto.GRAPH:
                graphs.append(a.g)
    return found


def _fetch(tensor: TensorProto, folder: Path | None, limits: Limits, name: str) -> None:
    """Bring numbers that lie in another file."""
    where = f"{name}: tensor {tensor.name!r}"
    entries = {e.key: e.value for e in tensor.external_data}
    if folder is None:
        raise SerializationError(
            f"{where}: its numbers lie in the file {entries.get('location')!r}; load the model by "
            "its path"
        )
    path = _inside(folder, entries.get("location", ""), where)
    start, length = (_count(entries, key, where) for key in ("offset", "length"))
    try:
        size = path.stat().st_size
        length = size - (start or 0) if length is None else length
        if (start or 0) + length > size or length > limits.bytes:
            raise SerializationError(
                f"{where}: {length} bytes from {start or 0} on; {path.name} has {size}"
            )
        with path.open("rb") as file:
            file.seek(start or 0)
            tensor.raw_data = file.read(length)
    except (OSError, ValueError) as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError(f"{where}: {path} cannot be read ({error})") from None
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file ``location`` of the model's folder."""
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        fits = bool(location) and "\0" not in location and not os.path.isabs(location)
        fits = fits and path.is_relative_to(root) and path.is_file()
    except (OSError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise SerializationError(
            f"{where}: its numbers lie in {location!r}; needed is a file in the model's folder"
        )
    return path


def _count(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise SerializationError(
            f"{where}: {key} {text!r} of its numbers; needed is a count of bytes"
        )
    return int(text)


def version_of_format() -> int:
    """The newest version of the file format that is known."""
    return onnx.IR_VERSION
