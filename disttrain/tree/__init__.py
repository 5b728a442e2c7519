"""Nested containers as trees: flatten, unflatten, map. Leaves are whatever is no container.

A ``Registry`` has kinds of its own, and gives the form of a tree as a ``Definition``; a ``Forest``
is one with the functions of trees.
"""

from .containers import (  # noqa: A004
    assert_alike,
    below,
    by_key,
    children,
    flatten,
    leaves,
    map,
    register,
    register_parts,
    structure,
)
from .definitions import (
    Definition,
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    Rule,
    SequenceKey,
)
from .forest import Forest, Partial
from .registry import Registry

__all__ = [
    "Definition",
    "DictKey",
    "FlattenedIndexKey",
    "Forest",
    "GetAttrKey",
    "Partial",
    "Registry",
    "Rule",
    "SequenceKey",
    "assert_alike",
    "below",
    "by_key",
    "children",
    "flatten",
    "leaves",
    "map",
    "register",
    "register_parts",
    "structure",
]
