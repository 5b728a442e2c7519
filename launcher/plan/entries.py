"""What nodes have written into the registry, checked before it is believed: another program, a
person or a disk may have changed it. Pure.
"""

from __future__ import annotations

import dataclasses
import json
from types import NoneType
from typing import Any

from disttrain.errors import LaunchError

_NUMBER = (int, float)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "int": int, "str": str, "float": _NUMBER, "bool": bool, "int | None": (int, NoneType),
    "dict[str, str]": dict, "dict[str, Any]": dict,
    "tuple[str, ...]": list, "tuple[dict[str, Any], ...]": list,
}  # fmt: skip
# What dictionaries inside of entries have under these names, where they have them.
_INSIDE: dict[str, type | tuple[type, ...]] = {
    "rank": int, "code": int, "at": _NUMBER, "seconds": _NUMBER, "operations": _NUMBER,
    "cause": str, "traceback": str, "node": str, "report": dict,
    "name": str, "address": str, "port": int, "count": int, "role": str,
    "stopped": bool, "stalled": bool, "busy": int, "lost": int,
}  # fmt: skip


class Damaged(LaunchError):
    """An entry that no node of a job can have written."""


def fields_of(kind: type, data: bytes) -> dict[str, Any]:
    """The fields of a dataclass as another node has written them, without those that only its
    version has: that the versions differ is said of the nodes' terms. Raises ``Damaged``."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is no JSON ({error})") from None
    if not isinstance(told, dict):
        raise Damaged("it is JSON, but no object")
    found = {}
    for field in dataclasses.fields(kind):
        if field.name in told:
            found[field.name] = _checked(field.name, told[field.name], _KINDS[str(field.type)])
        elif (field.default, field.default_factory) == (dataclasses.MISSING, dataclasses.MISSING):
            raise Damaged(f"it has no {field.name!r}")
    return found


def _checked(name: str, value: object, kind: type | tuple[type, ...]) -> Any:
    """``value``, lists of it as tuples."""
    if not isinstance(value, kind):
        raise Damaged(f"its {name!r} is {str(value)[:40]!r}")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _INSIDE:
                _checked(f"{name}.{key}", inner, _INSIDE[key])
    if isinstance(value, list):
        inside = dict if name == "nodes" else str
        return tuple(_checked(name, one, inside) for one in value)
    return value
