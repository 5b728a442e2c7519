"""The structure of arguments and results as data: tuples, lists, dicts, named tuples, None, plain
values, and places of tensors."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.tensor import Tensor
from ..errors import CaptureError, SerializationError, ShapeError
from .sizes import Size

_PLAIN = (bool, int, float, str, type(None))
_DEEPEST = 64
TENSOR = {"kind": "tensor"}


def spec_of(value: Any, where: str, is_tensor: Callable[[Any], bool]) -> dict[str, Any]:
    """The structure of ``value``, with leaves for what ``is_tensor`` says."""
    if is_tensor(value):
        return TENSOR
    if isinstance(value, Size):
        return {"kind": "size", "text": value.text}
    if type(value) in _PLAIN:
        return {"kind": "plain", "value": value}
    if isinstance(value, dict):
        ordered = "odict" if isinstance(value, collections.OrderedDict) else "dict"
        for key in value:
            if type(key) not in (str, int, bool):
                raise CaptureError(f"export: {where} has the key {key!r}; texts and numbers can be "
                                   "saved")  # fmt: skip
        parts = [spec_of(v, f"{where}[{k!r}]", is_tensor) for k, v in value.items()]
        return {"kind": ordered, "keys": list(value), "parts": parts}
    if isinstance(value, (list, tuple)):
        parts = [spec_of(v, f"{where}[{i}]", is_tensor) for i, v in enumerate(value)]
        if hasattr(value, "_fields"):
            names = {"name": type(value).__name__, "keys": list(value._fields)}
            return {"kind": "named", **names, "parts": parts}
        return {"kind": "list" if isinstance(value, list) else "tuple", "parts": parts}
    raise CaptureError(
        f"export: {where} is a {type(value).__name__}, which no file can hold; give tensors, "
        "numbers, texts, and tuples, lists and dicts of these"
    )


def take_apart(spec: dict, value: Any, where: str, found: list) -> None:
    """Append the tensors of ``value``, which must have the structure ``spec``."""
    kind = spec["kind"]
    if kind == "tensor":
        found.append((where, value))
    elif kind == "plain":
        if type(value) is not type(spec["value"]) or repr(value) != repr(spec["value"]):
            raise ShapeError(f"{where}: {value!r:.60} given; the program was made with "
                             f"{spec['value']!r:.60}")  # fmt: skip
    elif kind in ("dict", "odict"):
        if not isinstance(value, dict) or set(value) != set(spec["keys"]):
            raise ShapeError(f"{where}: {_form(value)} given; a dict with the keys "
                             f"{spec['keys']} is needed")  # fmt: skip
        for key, part in zip(spec["keys"], spec["parts"], strict=True):
            take_apart(part, value[key], f"{where}[{key!r}]", found)
    else:
        if not isinstance(value, (list, tuple)) or len(value) != len(spec["parts"]):
            raise ShapeError(f"{where}: {_form(value)} given; a {kind} of {len(spec['parts'])} is "
                             "needed")  # fmt: skip
        for i, part in enumerate(spec["parts"]):
            take_apart(part, value[i], f"{where}[{i}]", found)


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with the keys {list(value)!r:.80}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def put_together(spec: dict, tensors: Iterator[Any], sizes: Mapping[str, int]) -> Any:
    """What has the structure ``spec``, of these tensors, and sizes of dimensions."""
    kind = spec["kind"]
    if kind == "tensor":
        return next(tensors)
    if kind == "plain":
        return spec["value"]
    if kind == "size":
        return Size(spec["text"]).evaluate(sizes)
    parts = [put_together(part, tensors, sizes) for part in spec["parts"]]
    if kind in ("dict", "odict"):
        pairs = zip(spec["keys"], parts, strict=True)
        return dict(pairs) if kind == "dict" else collections.OrderedDict(pairs)
    if kind == "named":
        return collections.namedtuple(spec["name"], spec["keys"])(*parts)  # type: ignore[misc]
    return parts if kind == "list" else tuple(parts)


def count(spec: dict) -> int:
    """How many tensors there are in it."""
    return 1 if spec["kind"] == "tensor" else sum(count(part) for part in spec.get("parts", ()))


def names(spec: dict, base: str) -> list[str]:
    """A name for each tensor: ``base``, with numbers and keys of what it lies in."""
    if spec["kind"] == "tensor":
        return [base]
    keys = spec.get("keys", range(len(spec.get("parts", ()))))
    return [
        name
        for key, part in zip(keys, spec.get("parts", ()), strict=True)
        for name in names(part, f"{base}_{key}" if base else str(key))
    ]


def checked(
    spec: Any, where: str, read_size: Callable[[Any, str], Any], depth: int = 0
) -> dict[str, Any]:
    """A structure that was read from a file, if it is one. ``read_size``: checks an expression."""
    if type(spec) is not dict or depth > _DEEPEST:
        raise SerializationError(f"{where}: a structure of values is needed, {spec!r:.60} found")
    kind, parts, keys = spec.get("kind"), spec.get("parts"), spec.get("keys")
    if kind == "tensor" and set(spec) == {"kind"}:
        return TENSOR
    if kind == "plain" and set(spec) == {"kind", "value"} and type(spec["value"]) in _PLAIN:
        return spec
    if kind == "size" and set(spec) == {"kind", "text"}:
        read_size(spec["text"], where)
        return spec
    wanted = {"list": 2, "tuple": 2, "dict": 3, "odict": 3, "named": 4}.get(str(kind))
    if wanted != len(spec) or type(parts) is not list:
        raise SerializationError(f"{where}: a structure of kind {kind!r:.60} is not known")
    if wanted > 2:
        _check_keys(keys, len(parts), spec, where)
    return {**spec, "parts": [checked(part, where, read_size, depth + 1) for part in parts]}


def _check_keys(keys: Any, number: int, spec: dict, where: str) -> None:
    good = type(keys) is list and len(keys) == number
    good = good and all(type(k) in (str, int, bool) for k in keys) and len(set(keys)) == number
    if good and spec["kind"] == "named":
        texts = [spec.get("name"), *keys]
        good = all(type(k) is str and k.isidentifier() and not k.startswith("_") for k in texts)
    if not good:
        raise SerializationError(f"{where}: keys {keys!r:.60} of a structure are not understood")


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


__all__ = ["TENSOR", "checked", "count", "is_tensor", "names", "put_together", "spec_of",
           "take_apart"]  # fmt: skip
