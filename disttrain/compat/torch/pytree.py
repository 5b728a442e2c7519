"""``torch.utils._pytree``: nested containers as trees, with the specification as a value.

Unlike ``disttrain.tree``, None is a leaf here, and which class is a container may be added.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ... import tree as trees
from ...core.tensor import Size
from ..publish import Shim

Pairs = list[tuple[Any, Any]]


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child."""
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """The key of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """The name of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """How a class of containers is taken apart, and put together again."""

    type: type
    flatten_fn: Callable[[Any], tuple]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple] | None = None


def _sequence(kind: type, make: Callable[[Iterable, Any], Any], context: Callable) -> NodeDef:
    def pairs(values: Any) -> tuple[Pairs, Any]:
        return [(SequenceKey(i), v) for i, v in enumerate(values)], context(values)

    return NodeDef(kind, lambda values: (list(values), context(values)), make, pairs)


def _mapping(kind: type, make: Callable[[Iterable, Any], Any], context: Callable) -> NodeDef:
    def pairs(values: dict) -> tuple[Pairs, Any]:
        return [(MappingKey(k), v) for k, v in values.items()], context(values)

    return NodeDef(kind, lambda values: (list(values.values()), context(values)), make, pairs)


def is_namedtuple_class(kind: Any) -> bool:
    """Whether a class is one of named tuples."""
    names = getattr(kind, "_fields", None)
    return isinstance(kind, type) and issubclass(kind, tuple) and isinstance(names, tuple)


def is_namedtuple_instance(obj: object) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: object) -> bool:
    """Whether an object, or a class, is of named tuples."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(kind: Any) -> bool:
    """Whether a class is one of C's structures that are tuples (``time.struct_time``)."""
    given = isinstance(kind, type) and kind.__bases__ == (tuple,)
    return given and isinstance(getattr(kind, "n_sequence_fields", None), int)


def is_structseq_instance(obj: object) -> bool:
    """Whether an object is such a structure."""
    return is_structseq_class(type(obj))


def _named_pairs(values: Any) -> tuple[Pairs, Any]:
    return [(GetAttrKey(n), getattr(values, n)) for n in values._fields], type(values)


def _key_context(values: dict) -> list:
    return list(values)


SUPPORTED_NODES: dict[Any, NodeDef] = {
    tuple: _sequence(tuple, lambda values, _: tuple(values), lambda values: None),
    list: _sequence(list, lambda values, _: list(values), lambda values: None),
    Size: _sequence(Size, lambda values, _: Size(values), lambda values: None),
    deque: _sequence(deque, lambda values, size: deque(values, maxlen=size), lambda d: d.maxlen),
    dict: _mapping(dict, lambda values, keys: dict(zip(keys, values, strict=True)), _key_context),
    OrderedDict: _mapping(
        OrderedDict, lambda values, keys: OrderedDict(zip(keys, values, strict=True)), _key_context
    ),
    defaultdict: _mapping(
        defaultdict,
        lambda values, how: defaultdict(how[0], zip(how[1], values, strict=True)),
        lambda d: [d.default_factory, list(d)],
    ),
    NamedTuple: NodeDef(
        tuple, lambda values: (list(values), type(values)),
        lambda values, kind: kind(*values), _named_pairs,
    ),
}  # fmt: skip
_MAPPINGS = (dict, OrderedDict, defaultdict)


def register_pytree_node(
    cls: type, flatten_fn: Callable, unflatten_fn: Callable, *,
    serialized_type_name: str | None = None, to_dumpable_context: Callable | None = None,
    from_dumpable_context: Callable | None = None, flatten_with_keys_fn: Callable | None = None,
) -> None:  # fmt: skip
    """Make a class a container: ``flatten_fn(obj)`` gives its children and a context, and
    ``unflatten_fn(children, context)`` puts it together again."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)

    def parts(obj: Any) -> tuple[list, Callable[[list], Any]]:
        children, context = flatten_fn(obj)
        return list(children), lambda values: unflatten_fn(values, context)

    trees.register_parts(cls, parts)  # for transforms and hooks


def register_dataclass(
    cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:  # fmt: skip
    """Make a class with fields a container of them."""
    dropped = drop_field_names or ()
    names = field_names or [f.name for f in fields(cls) if f.init and f.name not in dropped]

    def pairs(obj: Any) -> tuple[Pairs, Any]:
        return [(GetAttrKey(n), getattr(obj, n)) for n in names], list(names)

    register_pytree_node(
        cls,
        lambda obj: ([getattr(obj, n) for n in names], list(names)),
        lambda values, order: cls(**dict(zip(order, values, strict=True))),
        flatten_with_keys_fn=pairs,
    )


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and issubclass(kind, tuple) and is_namedtuple_class(kind):
        return NamedTuple
    return kind


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether it is no container, or ``is_leaf`` says so."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


@dataclass(init=True, frozen=True, eq=True, repr=False)
class TreeSpec:
    """The structure of a tree: what is left of it without its leaves."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]

    @functools.cached_property
    def num_leaves(self) -> int:
        """How many leaves such a tree has."""
        return sum(c.num_leaves for c in self.children_specs) if self.type is not None else 1

    @functools.cached_property
    def num_nodes(self) -> int:
        """How many containers and leaves it has."""
        return 1 + sum(c.num_nodes for c in self.children_specs)

    @property
    def num_children(self) -> int:
        """How many children its outermost container has."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it is a leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of its children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The structure of one of them."""
        return self.children_specs[index]

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of ``tree`` where this structure has leaves."""
        if self.type is None:
            return [tree]
        kind = _get_node_type(tree)
        alike = kind is self.type or (kind in _MAPPINGS and self.type in _MAPPINGS)
        if not alike:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        children = self._matching(tree, kind)
        if len(children) != len(self.children_specs):
            raise ValueError(
                f"Node arity mismatch; expected {len(self.children_specs)}, got {len(children)}."
            )
        specs = zip(self.children_specs, children, strict=True)
        return [leaf for spec, child in specs for leaf in spec.flatten_up_to(child)]

    def _matching(self, tree: Any, kind: Any) -> list[Any]:
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if kind in _MAPPINGS:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {keys!r}, got {list(tree)!r}.")
            return [tree[k] for k in keys]
        if kind is not deque and context != self.context:
            raise ValueError(f"Node context mismatch; expected {self.context!r}, got {context!r}.")
        return children

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        given = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers "
                f"to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._build(iter(given))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        children = [c._build(leaves) for c in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = ", ".join(repr(c) for c in self.children_specs)
        name = getattr(self.type, "__name__", str(self.type))
        return f"TreeSpec({name}, {self.context}, [{inner}])"

    def __hash__(self) -> int:
        return hash((self.type, str(self.context), tuple(self.children_specs)))


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def _flatten(tree: Any, leaves: list, is_leaf: Callable | None) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_flatten(tree: Any, is_leaf: Callable | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but "
            f"got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable | None = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable | None = None) -> Iterator[Any]:
    """The leaves in order, one by one."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable | None = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """A tree of ``func`` of each leaf, and of what the other trees have in its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten([*map(func, leaves, *(spec.flatten_up_to(r) for r in rests))])


def tree_map_(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """Call ``func`` as ``tree_map`` does, and give the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(which: Any) -> Callable[[Callable], Callable]:
    """A function changed so that it is called for what is of a class (of some; what a predicate
    holds of), and gives all else as it is."""
    asks = callable(which) and not isinstance(which, type)
    holds = which if asks else lambda value: isinstance(value, which)

    def wrap(func: Callable) -> Callable:
        return functools.wraps(func)(lambda value: func(value) if holds(value) else value)

    return wrap


def tree_map_only(which: Any, func: Callable, tree: Any, is_leaf: Callable | None = None) -> Any:
    """``tree_map`` over leaves of a class, of some, or of which a predicate holds."""
    return tree_map(map_only(which)(func), tree, is_leaf=is_leaf)


def tree_map_only_(which: Any, func: Callable, tree: Any, is_leaf: Callable | None = None) -> Any:
    """Call ``func`` as ``tree_map_only`` does, and give the tree itself."""
    return tree_map_(map_only(which)(func), tree, is_leaf=is_leaf)


def _quantified(every: Callable, only: bool) -> Callable:
    if only:
        return lambda kinds, pred, tree, is_leaf=None: every(
            pred(v) for v in tree_leaves(tree, is_leaf) if isinstance(v, kinds)
        )
    return lambda pred, tree, is_leaf=None: every(map(pred, tree_leaves(tree, is_leaf)))


def _paths(tree: Any, is_leaf: Callable | None, so_far: tuple) -> Iterator[tuple[tuple, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield so_far, tree
        return
    how = SUPPORTED_NODES[_get_node_type(tree)].flatten_with_keys_fn
    if how is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}.")
    for key, child in how(tree)[0]:
        yield from _paths(child, is_leaf, (*so_far, key))


def tree_leaves_with_path(tree: Any, is_leaf: Callable | None = None) -> Pairs:
    """The leaves in order, each with the keys that lead to it."""
    return list(_paths(tree, is_leaf, ()))


def tree_flatten_with_path(tree: Any, is_leaf: Callable | None = None) -> tuple[Pairs, TreeSpec]:
    """The same, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None
) -> Any:
    """``tree_map`` of a function that is given the path of each leaf first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    return spec.unflatten([*map(func, *columns, *(spec.flatten_up_to(r) for r in rests))])


def keystr(path: tuple) -> str:
    """A path as it would be written behind the name of a tree."""
    return "".join(map(str, path))


def key_get(obj: Any, path: tuple) -> Any:
    """What a path leads to."""
    return functools.reduce(lambda at, key: key.get(at), path, obj)


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments of a call."""
    return [leaf for part in (*args, *kwargs.values()) for leaf in tree_leaves(part)]


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Callable | None = None
) -> list[Any] | None:
    """Leaves for ``treespec``, of a tree of which a leaf may stand for a part; None: it does not
    fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    parts = [
        _broadcast_to_and_flatten(child, spec, is_leaf)
        for child, spec in zip(children, treespec.children_specs, strict=True)
    ]
    return None if None in parts else functools.reduce(operator.iadd, parts, [])  # type: ignore[arg-type]


def module() -> Shim:
    """``torch.utils._pytree``."""
    given = {n: v for n, v in globals().items() if getattr(v, "__module__", None) == __name__}
    kinds = {"dict": dict, "list": list, "tuple": tuple, "ordereddict": OrderedDict,
             "defaultdict": defaultdict, "deque": deque, "namedtuple": NamedTuple}  # fmt: skip
    parts: dict[str, Any] = {}
    for name, kind in kinds.items():
        node = SUPPORTED_NODES[kind]
        parts |= {f"_{name}_flatten": node.flatten_fn, f"_{name}_unflatten": node.unflatten_fn,
                  f"_{name}_flatten_with_keys": node.flatten_with_keys_fn}  # fmt: skip
    return Shim("torch.utils._pytree").give(
        **parts,
        **{n: v for n, v in given.items() if n != "module"},
        SUPPORTED_NODES=SUPPORTED_NODES, PyTree=Any, Context=Any, KeyPath=tuple,
        is_structseq=lambda obj: is_structseq_class(obj if isinstance(obj, type) else type(obj)),
        tree_all=_quantified(all, False), tree_any=_quantified(any, False),
        tree_all_only=_quantified(all, True), tree_any_only=_quantified(any, True),
        treespec_leaf=lambda: _LEAF, treespec_pprint=repr, _is_leaf=tree_is_leaf,
        _register_pytree_node=register_pytree_node,
        _private_register_pytree_node=register_pytree_node,
        _is_namedtuple_instance=is_namedtuple_instance,
    )  # fmt: skip
