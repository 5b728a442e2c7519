"""Nested containers as trees: flatten, unflatten, map. Leaves are whatever is no container.

Containers are tuple (and namedtuple), list, dict (and subclasses, in insertion order), None as an
empty tree, and dataclass instances registered by ``register``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# kind -> what takes one apart: its children, and what rebuilds it from as many.
_registered: dict[type, Callable[[Any], tuple[list, Callable[[list], Any]]]] = {}


def register(kind: type, flatten: Callable[[Any], list], unflatten: Callable[[list], Any]) -> None:
    """Make ``kind`` a container: ``flatten(obj)`` gives its children, ``unflatten`` rebuilds it."""
    register_parts(kind, lambda obj: (flatten(obj), unflatten))


def register_parts(kind: type, parts: Callable[[Any], tuple[list, Callable[[list], Any]]]) -> None:
    """Make ``kind`` a container: ``parts(obj)`` gives its children and what rebuilds it."""
    _registered[kind] = parts


def children(tree: Any) -> tuple[list, Callable[[list], Any] | None]:
    """The children of ``tree`` and what rebuilds it from as many; None for that of a leaf."""
    kind = type(tree)
    if kind in _registered:
        return _registered[kind](tree)
    if isinstance(tree, dict):
        keys = list(tree)
        make = kind if kind.__name__ in ("dict", "OrderedDict") else dict
        return list(tree.values()), lambda values: make(zip(keys, values, strict=True))
    if isinstance(tree, (list, tuple)) and kind.__name__ != "Size":
        if hasattr(tree, "_fields"):
            return list(tree), lambda values: kind(*values)
        return list(tree), kind
    return [], None


def flatten(tree: object, *, with_none: bool = False) -> tuple[list, Callable[[list], Any]]:
    """The leaves of ``tree`` in order, and a function that rebuilds it from as many leaves.
    ``with_none``: None is a leaf, not an empty tree."""
    leaves: list[Any] = []
    build = _walk(tree, leaves, with_none)
    count = len(leaves)  # (who keeps the function keeps no leaf)

    def unflatten(values: list) -> Any:
        if len(values) != count:
            raise ValueError(f"unflatten: {len(values)} leaves given, {count} needed")
        return build(iter(values))

    return leaves, unflatten


def _walk(tree: Any, leaves: list, with_none: bool = False) -> Callable[[Any], Any]:
    if tree is None and not with_none:
        return lambda it: None
    parts, rebuild = children(tree)
    if rebuild is None:
        leaves.append(tree)
        return next
    builders = [_walk(child, leaves, with_none) for child in parts]
    return lambda it: rebuild([b(it) for b in builders])


def leaves(tree: object, *, with_none: bool = False) -> list:
    """The leaves of ``tree`` in order."""
    return flatten(tree, with_none=with_none)[0]


def below(value: Any, parts: Callable[[Any], Iterable]) -> Iterator[Any]:
    """What ``parts`` gives of a value, and of each of these, depth first and each once."""
    seen = {id(value)}

    def walk(whole: Any) -> Iterator[Any]:
        for part in parts(whole):
            if id(part) not in seen:
                seen.add(id(part))
                yield part
                yield from walk(part)

    return walk(value)


def assert_alike(one: Any, *others: Any) -> None:
    """Raise unless trees have as many leaves (with None) as ``one``."""
    count = len(leaves(one, with_none=True))
    for other in others:
        if len(leaves(other, with_none=True)) != count:
            first, second = (f"structure: type={type(t).__name__} str={t}" for t in (one, other))
            raise ValueError("The two structures don't have the same nested structure.\n\n"
                             f"First {first}\n\nSecond {second}")  # fmt: skip


def by_key(tree: Any) -> Any:
    """The tree with all dicts in the order of their keys."""
    if isinstance(tree, dict):
        keys = list(tree)
        with contextlib.suppress(TypeError):  # (of keys that have no order)
            keys.sort()
        tree = {k: tree[k] for k in keys}
    elif not isinstance(tree, (list, tuple)):
        return tree
    parts, rebuild = children(tree)
    return tree if rebuild is None else rebuild([by_key(part) for part in parts])


def structure(tree: Any) -> str:
    """The form of ``tree`` as a text, with * for each leaf: equal for trees of equal form."""
    if tree is None:
        return "None"
    parts, rebuild = children(tree)
    if rebuild is None:
        return "*"
    kind, inside = type(tree), [structure(child) for child in parts]
    if isinstance(tree, dict):
        inside = [f"{key!r}: {form}" for key, form in zip(tree, inside, strict=True)]
    text = ", ".join(inside)
    if kind is tuple:
        return f"({text},)" if len(inside) == 1 else f"({text})"
    if kind is list or kind is dict:
        return f"[{text}]" if kind is list else f"{{{text}}}"
    return f"{kind.__name__}({text})"


def map(  # noqa: A001  (the field's name for it)
    fn: Callable, tree: object, *rest: object, with_none: bool = False
) -> Any:
    """Apply ``fn`` to the leaves of ``tree`` (and, in step, of trees of the same structure)."""
    values, unflatten = flatten(tree, with_none=with_none)
    others = [leaves(r, with_none=with_none) for r in rest]
    return unflatten([fn(*row) for row in zip(values, *others, strict=True)])
