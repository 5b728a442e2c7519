"""Results of traced functions that consist of tensors."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from .. import tree


class Composite:
    """A result that consists of tensors: its attributes ``fields``, of which it is made."""

    fields: ClassVar[tuple[str, ...]] = ()


class _Opened(NamedTuple):
    kind: type
    parts: list


tree.register_parts(_Opened, lambda o: (o.parts, lambda found: o.kind(*found)))


def opened(value: Any) -> Any:
    """``value``; of a composite its parts, as a container."""
    parts = [getattr(value, f) for f in value.fields] if isinstance(value, Composite) else []
    return _Opened(type(value), parts) if parts else value
