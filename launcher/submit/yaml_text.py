"""Plain data as YAML, for people to read and keep. Pure.

Strings are written as JSON writes them, which YAML reads as the same strings (YAML 1.2, 1.3), so
nothing that looks like a number or ``no`` changes its meaning.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_OTHER_MEANINGS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def documents(objects: list[dict[str, Any]]) -> str:
    """Several objects, one document each."""
    return "---\n".join("\n".join(_lines(found)) + "\n" for found in objects)


def _lines(value: object) -> list[str]:
    """The lines of a value, as they stand on their own."""
    if isinstance(value, dict) and value:
        lines = []
        for key, inner in value.items():
            lines += _after(f"{_scalar(key)}:", inner, indent="  ")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for inner in value:
            first, *rest = _lines(inner)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return [_scalar(value)]


def _after(head: str, value: object, indent: str) -> list[str]:
    if isinstance(value, (dict, list)) and value:
        return [head, *(indent + line for line in _lines(value))]
    return [f"{head} {_scalar(value)}"]


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return value if plain and value.lower() not in _OTHER_MEANINGS else json.dumps(value)
