"""Attributes that programs give to tensors. Knows that the names that begin with an underscore, and
``array``, are a tensor's own."""

from __future__ import annotations

from typing import Any


def own_attributes(t: object) -> dict[str, Any]:
    """Attributes that the program has given to ``t``, also in slots of its class."""
    own = {k: v for k, v in t.__dict__.items() if not k.startswith("_") and k != "array"}
    if type(t).__mro__[2] is not object:  # a class of the program's
        own |= {k: getattr(t, k) for k in _slots(type(t)) if hasattr(t, k)}
    return own


def _slots(kind: type) -> list[str]:
    found = (vars(k).get("__slots__", ()) for k in kind.__mro__)
    return [name for names in found for name in ([names] if isinstance(names, str) else names)]


def give_attributes(t: object, own: dict[str, Any]) -> None:
    """``t`` gets what ``own_attributes`` found at another."""
    for name, value in own.items():
        setattr(t, name, value)
