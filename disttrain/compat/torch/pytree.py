"""``torch.utils._pytree``: nested containers as trees, as programs beside PyTorch's spell it. None
is a leaf there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ... import tree
from .shim import Shim


class TreeSpec:
    """The form of a tree. Two of one form are equal."""

    def __init__(self, whole: Any) -> None:
        leaves, self._unflatten = tree.flatten(whole, with_none=True)
        self.num_leaves, self._form = len(leaves), tree.structure(whole).replace("None", "*")
        self.type = None if self._form == "*" else type(whole)

    def is_leaf(self) -> bool:
        """Whether it is one leaf and no container."""
        return self.type is None

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree with these leaves."""
        return self._unflatten(list(leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and other._form == self._form

    def __hash__(self) -> int:
        return hash(self._form)

    def __repr__(self) -> str:
        return f"TreeSpec({self._form})"


def tree_flatten(whole: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple:
    """The leaves, and the form by which ``tree_unflatten`` puts them together."""
    held = _held(whole, is_leaf)
    return [_given(x) for x in tree.leaves(held, with_none=True)], TreeSpec(held)


def tree_leaves(whole: Any, is_leaf: Callable[[Any], bool] | None = None) -> list:
    """The leaves in order."""
    return tree_flatten(whole, is_leaf)[0]


def tree_structure(whole: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The form."""
    return tree_flatten(whole, is_leaf)[1]


def tree_unflatten(leaves: Iterable, treespec: TreeSpec) -> Any:
    """A tree of that form with these leaves."""
    return treespec.unflatten(leaves)


def tree_map(
    fn: Callable, whole: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """The tree of ``fn`` of each leaf (and of those at its place in ``rests``)."""
    leaves, form = tree_flatten(whole, is_leaf)
    others = [tree_leaves(r, is_leaf) for r in rests]
    return form.unflatten([fn(*row) for row in zip(leaves, *others, strict=True)])


def tree_map_(fn: Callable, whole: Any, *rests: Any) -> Any:
    """Call ``fn`` for each leaf; the tree is as before."""
    tree_map(fn, whole, *rests)
    return whole


def tree_map_only(kind: Any, fn: Callable, whole: Any) -> Any:
    """``tree_map`` where only leaves of ``kind`` (types, or a condition) are changed."""
    wanted = kind if not isinstance(kind, (type, tuple)) else lambda x: isinstance(x, kind)
    return tree_map(lambda x: fn(x) if wanted(x) else x, whole)


def tree_all(condition: Callable[[Any], bool], whole: Any) -> bool:
    """Whether it holds for every leaf."""
    return all(map(condition, tree_leaves(whole)))


def tree_any(condition: Callable[[Any], bool], whole: Any) -> bool:
    """Whether it holds for any leaf."""
    return any(map(condition, tree_leaves(whole)))


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, **_: Any) -> None:
    """Make ``cls`` a container: ``flatten_fn(x)`` gives (children, context), ``unflatten_fn``
    rebuilds it from these."""

    def parts(value: Any) -> tuple[list, Callable[[list], Any]]:
        children, context = flatten_fn(value)
        return list(children), lambda values: unflatten_fn(values, context)

    tree.register_parts(cls, parts)


class _Leaf:
    """What is a leaf because the caller says so."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _held(whole: Any, is_leaf: Callable[[Any], bool] | None) -> Any:
    if is_leaf is None:
        return whole
    if is_leaf(whole):
        return _Leaf(whole)
    children, rebuild = tree.children(whole)
    return whole if rebuild is None else rebuild([_held(c, is_leaf) for c in children])


def _given(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, _Leaf) else leaf


def modules() -> dict[str, Shim]:
    """By name."""
    names = {n: globals()[n] for n in __all__ if n != "modules"}
    return {"torch.utils._pytree": Shim("torch.utils._pytree").give(**names, PyTree=Any)}


__all__ = [
    "TreeSpec",
    "modules",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
]
