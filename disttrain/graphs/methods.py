"""What belongs to an object and goes with it: the traced functions that its methods are.

They refer to the object, so a table of them elsewhere would keep it for ever, weak as its keys may
be; and objects that are equal are not the same."""

from __future__ import annotations

import weakref
from typing import Any

_WORD = "_traced_methods"


class Methods:
    """What was made for ``owner``. A copy of the owner finds that it is another's."""

    __slots__ = ("known", "owner")

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner
        self.known: dict[Any, Any] = {}

    def __reduce__(self) -> tuple:
        return Methods, ()


_APART: Any = weakref.WeakKeyDictionary()  # of objects without attributes of their own


def methods_of(owner: Any) -> dict[Any, Any]:
    """The table of ``owner``; an empty one of nobody's, where it can have none."""
    attributes = getattr(owner, "__dict__", None)
    if attributes is None:
        try:
            found: dict[Any, Any] = _APART.setdefault(owner, {})
        except TypeError:  # (no weak references, or no hash)
            return {}
        return found
    held = attributes.get(_WORD)
    if held is None or held.owner is not owner:
        held = attributes[_WORD] = Methods(owner)
    known: dict[Any, Any] = held.known
    return known
