"""Requests for inference into arrays, and results into answers: V2 in JSON, with its extension for
tensors in binary (KServe, "Open Inference Protocol", and "Binary tensor data extension").

Pure: bytes in, arrays out, and the other way round.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ShapeError
from . import documents
from .refusal import Refused, shown
from .signature import DATATYPES, Signature, Spec

_MOST_DIMS = 32
_LARGEST = 1 << 40  # of a size in a shape
_NUMBERS = frozenset((int, float))
_TYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
_DTYPES = {name: _TYPES.get(name) or np.dtype(name) for name in DATATYPES}
_FEW = 4096  # numbers whose sum of squares says at once that all are finite


@dataclass(slots=True)
class Inference:
    """What a request asks for. ``arrays``: one for each input, in the signature's order; ``key``:
    requests with equal ones can be joined along the batch; ``outputs``: (place in the signature,
    whether in binary)."""

    id: str | None
    arrays: list[np.ndarray]
    key: tuple
    rows: int
    outputs: list[tuple[int, bool]]
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and depth of JSON."""

    json: int
    depth: int


def dtype_of(name: str) -> np.dtype:
    """numpy's type of a name that a signature has."""
    return _DTYPES[name]


def read(signature: Signature, body: bytes, head: str | None, limits: Limits) -> Inference:
    """The request in ``body``, of which the first ``head`` bytes are JSON (None: all of it). Raises
    ``Refused``."""
    text, tail = _parts(body, head)
    asked = documents.read(text, limits.json, limits.depth)
    given = _by_name(_list(asked, "inputs", needed=True), "inputs")
    arrays: list[np.ndarray] = []
    sizes: dict[str, int] = {}
    binary = _Binary(tail)
    placed = {name: _array(signature, name, entry, binary) for name, entry in given.items()}
    binary.end()
    for position, spec in enumerate(signature.inputs):
        if spec.name not in placed:
            raise Refused(400, f"inputs: {spec.name} is missing")
        array = placed[spec.name]
        try:
            signature.check(position, array.shape, sizes)
        except ShapeError as error:
            raise Refused(400, str(error)) from None
        arrays.append(array)
    try:
        signature.check_ranges(sizes)
    except ShapeError as error:
        raise Refused(400, str(error)) from None
    skipped = 1 if signature.batch else 0
    parameters = _object(asked, "parameters")
    return Inference(
        _id(asked),
        arrays,
        tuple(array.shape[skipped:] for array in arrays),
        sizes.get(signature.batch, 1),
        _outputs(signature, asked, parameters),
        _timeout(parameters),
    )


def _parts(body: bytes, head: str | None) -> tuple[bytes, memoryview | None]:
    if head is None:
        return body, None
    if not (head.isascii() and head.isdigit() and len(head) < 16 and int(head) <= len(body)):
        raise Refused(
            400, f"Inference-Header-Content-Length: {shown(head)}; the body has {len(body)} bytes"
        )
    return body[: int(head)], memoryview(body)[int(head) :]


class _Binary:
    """What follows the JSON: the tensors, in order."""

    def __init__(self, tail: memoryview | None) -> None:
        self.tail, self.at = tail, 0

    def take(self, size: Any, where: str) -> memoryview:
        if type(size) is not int or size < 0:
            raise Refused(400, f"{where}: binary_data_size: {shown(size)}; a number is needed")
        if self.tail is None:
            raise Refused(400, f"{where}: binary_data_size without Inference-Header-Content-Length")
        if self.at + size > len(self.tail):
            left = len(self.tail) - self.at
            raise Refused(400, f"{where}: binary_data_size {shown(size)}; {left} bytes are left")
        self.at += size
        return self.tail[self.at - size : self.at]

    def end(self) -> None:
        if self.tail is not None and self.at != len(self.tail):
            raise Refused(400, f"{len(self.tail) - self.at} bytes after the last tensor")


# -- inputs ----------------------------------------------------------------------------------------


def _array(signature: Signature, name: str, entry: dict[str, Any], binary: _Binary) -> np.ndarray:
    for spec in signature.inputs:
        if spec.name == name:
            break
    else:
        known = ", ".join(spec.name for spec in signature.inputs)
        raise Refused(400, f"inputs: there is no {shown(name)}; there are: {known}")
    where = f"input {name}"
    if entry.get("datatype") != spec.datatype:
        given = shown(entry.get("datatype"))
        raise Refused(400, f"{where}: datatype {given}; {spec.datatype} is needed")
    shape, dtype = _shape(entry, where), dtype_of(spec.dtype)
    parameters = _object(entry, "parameters", where)
    _refuse_regions(parameters, where)
    if "binary_data_size" in parameters:
        if "data" in entry:
            raise Refused(400, f"{where}: both data and binary_data_size")
        return _from_bytes(binary.take(parameters["binary_data_size"], where), shape, dtype, where)
    if type(entry.get("data")) is not list:
        raise Refused(400, f"{where}: data, a list, or binary_data_size is needed")
    return _from_list(entry["data"], shape, spec, where)


def _shape(entry: dict[str, Any], where: str) -> tuple[int, ...]:
    shape = entry.get("shape")
    if type(shape) is not list or len(shape) > _MOST_DIMS:
        raise Refused(400, f"{where}: shape {shown(shape)}; a list of sizes is needed")
    for size in shape:
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise Refused(400, f"{where}: shape {shown(shape)}; {shown(size)} is no size")
    return tuple(shape)


def _from_bytes(
    data: memoryview, shape: tuple[int, ...], dtype: np.dtype, where: str
) -> np.ndarray:
    needed = math.prod(shape) * dtype.itemsize
    if len(data) != needed:
        raise Refused(400, f"{where}: {len(data)} bytes; shape {list(shape)} needs {needed}")
    if dtype == np.bool_ and len(data) and np.frombuffer(data, np.uint8).max() > 1:
        raise Refused(400, f"{where}: bytes of BOOL are 0 or 1")
    return np.frombuffer(data, dtype).reshape(shape)


def _from_list(data: list, shape: tuple[int, ...], spec: Spec, where: str) -> np.ndarray:
    quick = _quick(data, shape, dtype_of(spec.dtype))
    if quick is not None:
        return quick
    if len(data) not in (math.prod(shape), shape[0] if shape else 1):  # before it costs anything
        raise Refused(400, f"{where}: data is a list of {len(data)}; shape {list(shape)} is needed")
    try:
        found = np.array(data) if data else np.empty(0, dtype_of(spec.dtype))
    except (ValueError, OverflowError):
        raise Refused(400, f"{where}: data is ragged") from None
    if found.size != math.prod(shape) or (found.ndim != 1 and found.shape != shape):
        raise Refused(
            400, f"{where}: data of shape {list(found.shape)[:16]}; {list(shape)} is needed"
        )
    return _converted(found, data, spec, where).reshape(shape)


def _quick(data: list, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """What is sent most: a flat list of as many finite numbers, for floats."""
    if (
        dtype.kind != "f"
        or len(data) != math.prod(shape)
        or not _NUMBERS.issuperset(map(type, data))
    ):
        return None
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            found = np.array(data, dtype)
            if dtype.itemsize > 2 and len(data) <= _FEW and math.isfinite(found.dot(found)):
                return found.reshape(shape)
    except OverflowError:  # an integer beyond all floats
        return None
    return found.reshape(shape) if np.isfinite(found).all() else None


def _converted(found: np.ndarray, data: list, spec: Spec, where: str) -> np.ndarray:
    """Numbers of JSON in the type that is needed, where they are in its range."""
    dtype, kind = dtype_of(spec.dtype), found.dtype.kind
    if found.dtype == dtype:
        if kind != "b" and _has_booleans(data):
            raise Refused(400, f"{where}: true and false among numbers")
        return found
    if kind not in "iuf" or spec.datatype == "BOOL" or _has_booleans(data):
        raise Refused(400, f"{where}: data is not all {spec.datatype}")
    if dtype.kind in "iu":
        return _integers(found, data, dtype, spec, where)
    with np.errstate(over="ignore", under="ignore"):
        result = found.astype(dtype)
    if (np.isinf(result) & np.isfinite(found)).any():
        raise Refused(400, f"{where}: a number is beyond {spec.datatype}")
    return result


def _integers(found: np.ndarray, data: list, dtype: np.dtype, spec: Spec, where: str) -> np.ndarray:
    if found.dtype.kind == "f":  # of numbers beyond int64 numpy makes floats
        flat = list(_flat(data))
        if not all(type(value) is int for value in flat):
            raise Refused(400, f"{where}: data is not all {spec.datatype}")
        found = np.array(flat, object)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if found.size and (found.min() < least or found.max() > most):
        raise Refused(400, f"{where}: a number is beyond {spec.datatype}")
    return found.astype(dtype)


def _has_booleans(data: list) -> bool:
    """numpy takes them for 0 and 1 where numbers are beside them."""
    if not data or type(data[0]) is not list:
        return bool in set(map(type, data))
    return any(_has_booleans(part) for part in data)


def _flat(data: list) -> Any:
    for part in data:
        if type(part) is list:
            yield from _flat(part)
        else:
            yield part


# -- what else a request says ----------------------------------------------------------------------


def _list(asked: dict[str, Any], key: str, needed: bool = False) -> list:
    found = asked.get(key)
    if found is None and not needed:
        return []
    if type(found) is not list:
        raise Refused(400, f"{key}: a list is needed")
    return found


def _by_name(entries: list, key: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if type(entry) is not dict or type(entry.get("name")) is not str:
            raise Refused(400, f"{key}: each needs a name")
        if entry["name"] in found:
            raise Refused(400, f"{key}: {shown(entry['name'])} stands there twice")
        found[entry["name"]] = entry
    return found


def _object(entry: dict[str, Any], key: str, where: str = "") -> dict[str, Any]:
    found = entry.get(key)
    if found is None:
        return {}
    if type(found) is not dict:
        raise Refused(400, f"{where}{': ' if where else ''}{key}: an object is needed")
    return found


def _id(asked: dict[str, Any]) -> str | None:
    found = asked.get("id")
    if found is not None and (type(found) is not str or len(found) > 1024):
        raise Refused(400, "id: a text of at most 1024 characters is needed")
    return found


def _timeout(parameters: dict[str, Any]) -> float | None:
    """``timeout`` of the parameters, in microseconds, as Triton has it: 0 is none."""
    found = parameters.get("timeout")
    if found is None:
        return None
    if type(found) is not int or found < 0:
        raise Refused(400, f"parameters: timeout: {shown(found)}; microseconds are needed")
    return min(found, _LARGEST) / 1e6 or None


def _refuse_regions(parameters: dict[str, Any], where: str) -> None:
    for name in ("shared_memory_region", "classification"):
        if name in parameters:
            raise Refused(400, f"{where}: {name} is not supported")


def _outputs(
    signature: Signature, asked: dict[str, Any], parameters: dict[str, Any]
) -> list[tuple[int, bool]]:
    usual = _flag(parameters, "binary_data_output", False, "parameters")
    entries = _by_name(_list(asked, "outputs"), "outputs")
    if not entries:
        return [(k, usual) for k in range(len(signature.outputs))]
    places = {spec.name: k for k, spec in enumerate(signature.outputs)}
    found = []
    for name, entry in entries.items():
        if name not in places:
            known = ", ".join(places)
            raise Refused(400, f"outputs: there is no {shown(name)}; there are: {known}")
        inner = _object(entry, "parameters", f"output {name}")
        _refuse_regions(inner, f"output {name}")
        found.append((places[name], _flag(inner, "binary_data", usual, f"output {name}")))
    return found


def _flag(parameters: dict[str, Any], key: str, default: bool, where: str) -> bool:
    found = parameters.get(key, default)
    if type(found) is not bool:
        raise Refused(400, f"{where}: {key}: {shown(found)}; true or false is needed")
    return found


# -- answers ---------------------------------------------------------------------------------------


def answer(
    name: str,
    version: str,
    signature: Signature,
    inference: Inference,
    results: Sequence[np.ndarray],
) -> tuple[list[bytes], int]:
    """The parts of the body, and how long its JSON is where tensors follow it (else 0).
    ``results``: by place in the signature."""
    outputs, tails = [], []
    for place, binary in inference.outputs:
        array = results[place]
        spec = signature.outputs[place]
        head = _head_of(spec.name, spec.datatype, array.shape)
        if binary:
            tails.append(array.tobytes())
            outputs.append(f'{head}"parameters":{{"binary_data_size":{len(tails[-1])}}}}}')
        else:
            outputs.append(f'{head}"data":{_data(array)}}}')
    told = documents.write(inference.id).decode("ascii") if inference.id is not None else None
    named = "" if told is None else f'"id":{told},'
    text = f'{_model(name, version)},{named}"outputs":[{",".join(outputs)}]}}'.encode("ascii")
    return [text, *tails], len(text) if tails else 0


@functools.lru_cache(256)
def _model(name: str, version: str) -> str:
    return documents.write({"model_name": name, "model_version": version}).decode("ascii")[:-1]


@functools.lru_cache(1024)
def _head_of(name: str, datatype: str, shape: tuple[int, ...]) -> str:
    told = {"name": name, "datatype": datatype, "shape": shape}
    return documents.write(told).decode("ascii")[:-1] + ","


def _data(array: np.ndarray) -> str:
    if array.dtype in _TYPES.values():
        array = array.astype(np.float32)
    flat = array.reshape(-1).tolist()
    if array.dtype == bool:
        return documents.write(flat).decode("ascii")
    return documents.write_numbers(flat)
