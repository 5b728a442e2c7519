"""Nested containers as trees: flatten, unflatten, map. Leaves are whatever is no container.

Containers are tuple (and namedtuple), list, dict (and subclasses, in insertion order), None as an
empty tree, and dataclass instances registered by ``register``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: dict[type, tuple[Callable[[Any], list], Callable[[list], Any]]] = {}


def register(kind: type, flatten: Callable[[Any], list], unflatten: Callable[[list], Any]) -> None:
    """Make ``kind`` a container: ``flatten(obj)`` gives its children, ``unflatten`` rebuilds it."""
    _registered[kind] = (flatten, unflatten)


def flatten(tree: object) -> tuple[list, Callable[[list], Any]]:
    """The leaves of ``tree`` in order, and a function that rebuilds it from as many leaves."""
    leaves: list[Any] = []
    build = _walk(tree, leaves)
    count = len(leaves)  # (who keeps the function keeps no leaf)

    def unflatten(values: list) -> Any:
        if len(values) != count:
            raise ValueError(f"unflatten: {len(values)} leaves given, {count} needed")
        return build(iter(values))

    return leaves, unflatten


def _walk(tree: Any, leaves: list) -> Callable[[Any], Any]:
    kind = type(tree)
    if tree is None:
        return lambda it: None
    if kind in _registered:
        parts, rebuild = _registered[kind]
        builders = [_walk(child, leaves) for child in parts(tree)]
        return lambda it: rebuild([b(it) for b in builders])
    if isinstance(tree, dict):
        keys = list(tree)
        builders = [_walk(tree[k], leaves) for k in keys]
        make = kind if kind.__name__ in ("dict", "OrderedDict") else dict
        return lambda it: make((k, b(it)) for k, b in zip(keys, builders, strict=True))
    if isinstance(tree, (list, tuple)) and kind.__name__ != "Size":
        builders = [_walk(child, leaves) for child in tree]
        if hasattr(tree, "_fields"):
            return lambda it: kind(*(b(it) for b in builders))
        return lambda it: kind(b(it) for b in builders)
    leaves.append(tree)
    return next


def leaves(tree: object) -> list:
    """The leaves of ``tree`` in order."""
    return flatten(tree)[0]


def map(fn: Callable, tree: object, *rest: object) -> Any:  # noqa: A001  (the field's name for it)
    """Apply ``fn`` to the leaves of ``tree`` (and, in step, of trees of the same structure)."""
    values, unflatten = flatten(tree)
    others = [leaves(r) for r in rest]
    return unflatten([fn(*row) for row in zip(values, *others, strict=True)])
