"""``jax.tree_util`` and ``jax.tree``: names over ``disttrain.tree``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import tree as native
from ...tree import Definition, Forest, Partial, Registry
from ...tree.forest import keystr


class PyTreeDef(Definition):
    """The form of a pytree."""

    __slots__ = ()
    __str__ = Definition.__repr__

    def flatten_up_to(self, tree: Any) -> list:
        """The subtrees of ``tree`` at the places of this form's leaves."""
        return default_registry.up_to(self, tree)

    @staticmethod
    def from_node_data_and_children(
        registry: Registry, node_data: tuple | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """The form with this root."""
        if node_data is None:
            return PyTreeDef(None, None, (), None)
        kind, data = node_data
        return PyTreeDef(kind, data, tuple(children), registry.rules[kind])


default_registry = Forest(PyTreeDef)
_FUNCTIONS = {  # by the names of jax.tree_util
    **{f"tree_{n}": getattr(default_registry, n) for n in """
        all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce
        reduce_associative structure transpose""".split()},
    **{n: getattr(default_registry, n) for n in """
        all_leaves flatten_one_level flatten_one_level_with_keys is_tree_node register_dataclass
        register_static""".split()},
    "register_pytree_node": default_registry.register_node,
    "register_pytree_node_class": default_registry.register_class,
    "register_pytree_with_keys": default_registry.register_with_keys,
    "register_pytree_with_keys_class": default_registry.register_class_with_keys,
    "tree_unflatten": lambda treedef, leaves: treedef.unflatten(leaves),
    "treedef_children": PyTreeDef.children, "treedef_tuple": default_registry.tuple_of,
    "treedef_is_leaf": lambda treedef: treedef.num_nodes == 1,
}  # fmt: skip
NAMES: dict[str, Any] = {  # of jax.tree_util
    **_FUNCTIONS,
    "DictKey": native.DictKey, "FlattenedIndexKey": native.FlattenedIndexKey,
    "GetAttrKey": native.GetAttrKey, "SequenceKey": native.SequenceKey, "KeyEntry": Any,
    "KeyPath": tuple, "Partial": Partial, "PyTreeDef": PyTreeDef,
    "default_registry": default_registry, "keystr": keystr,
}  # fmt: skip
# Of jax.tree: the same without "tree_".
SHORT = {n.removeprefix("tree_"): f for n, f in NAMES.items() if n.startswith("tree_")}


def __getattr__(name: str) -> Any:
    for names in (NAMES, SHORT):
        if name in names:
            return names[name]
    raise AttributeError(f"jax.tree has no {name!r}")
