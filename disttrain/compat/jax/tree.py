"""``jax.tree_util`` and ``jax.tree``: pytrees over ``disttrain.tree``'s registry."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ... import tree as native
from ...tree import Definition, GetAttrKey, Registry, Rule

default_registry = Registry()
KeyEntry = Any
KeyPath = tuple
_NONE = object()


class PyTreeDef:
    """The form of a pytree, as JAX's users see it."""

    __slots__ = ("form",)

    def __init__(self, form: Definition) -> None:
        self.form = form

    num_leaves = property(lambda self: self.form.num_leaves)
    num_nodes = property(lambda self: self.form.num_nodes)

    def unflatten(self, leaves: Iterable) -> Any:
        """The tree of this form with these leaves."""
        return self.form.unflatten(leaves)

    def children(self) -> list[PyTreeDef]:
        """The forms of the root's children."""
        return [PyTreeDef(c) for c in self.form.children]

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """This form with ``inner`` in place of each leaf."""
        return PyTreeDef(self.form.compose(inner.form))

    def node_data(self) -> tuple | None:
        """(type, aux data) of the root; None for a leaf."""
        return None if self.form.is_leaf else (self.form.kind, self.form.data)

    def flatten_up_to(self, tree: Any) -> list:
        """The subtrees of ``tree`` at the places of this form's leaves."""
        return flat_up_to(self.form, tree)

    def walk(self, node: Callable, leaf: Callable | None, leaves: Iterable) -> Any:
        """Put a tree together by ``node(children, data)`` and ``leaf``."""
        return _walked(self.form, node, leaf, iter(leaves))

    @staticmethod
    def from_node_data_and_children(
        registry: Registry, node_data: tuple | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """The form with this root."""
        inside = tuple(c.form for c in children)
        if node_data is None:
            return PyTreeDef(Definition(None, None, (), None))
        kind, data = node_data
        return PyTreeDef(Definition(kind, data, inside, registry.rules[kind]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PyTreeDef) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)

    def __repr__(self) -> str:
        return f"PyTreeDef({self.form})"


def _walked(form: Definition, node: Callable, leaf: Callable | None, leaves: Iterator) -> Any:
    if form.is_leaf:
        value = next(leaves)
        return value if leaf is None else leaf(value)
    return node(tuple([_walked(c, node, leaf, leaves) for c in form.children]), form.data)


# --- trees against trees ------------------------------------------------------------------------
def flat_up_to(form: Definition, tree: Any, where: str = "tree_map tree") -> list:
    """The subtrees of ``tree`` where ``form`` has leaves; ``ValueError`` where they differ."""
    found: list[Any] = []
    _up_to(form, tree, found, where)
    return found


def _up_to(form: Definition, tree: Any, found: list, where: str) -> None:
    if form.is_leaf:
        found.append(tree)
        return
    apart = default_registry.apart(tree) if type(tree) is form.kind else None
    head = f"pytree structure error: different {{}} at key path\n    {where}\nAt that key path, "
    if apart is None:
        raise ValueError(
            f"{head.format('types')}the prefix pytree {_root(where)} has a subtree of type\n    "
            f"{form.kind}\nbut at the same key path the full pytree has a subtree of different "
            f"type\n    {type(tree)}."
        )
    children, data, rule = apart
    if len(children) != len(form.children) and form.kind in (tuple, list):
        name = type(tree).__name__
        raise ValueError(
            f"{head.format(f'lengths of {name}')}the prefix pytree {_root(where)} has a subtree of "
            f"type {name} of length {len(form.children)}, but the full pytree has a subtree of the "
            f"same type but of length {len(children)}."
        )
    if data != form.data or len(children) != len(form.children):
        one, two = (str(tuple(d) if isinstance(d, list) else d) for d in (form.data, data))
        diff = "\n".join("    " + x for x in difflib.ndiff([one], [two]))
        raise ValueError(
            f"{head.format('pytree metadata')}the prefix pytree {_root(where)} has a subtree of "
            f"type\n    {form.kind}\nwith metadata\n    {one}\nbut at the same key path the full "
            f"pytree has a subtree of the same type but with metadata\n    {two}\nso the diff in "
            f"the metadata at these pytree nodes is\n{diff}"
        )
    keys = default_registry.keys(tree, rule, len(children))
    for key, sub, child in zip(keys, form.children, children, strict=True):
        _up_to(sub, child, found, f"{where}{key}")


def _root(where: str) -> str:
    return where.partition("[")[0].partition(".")[0]


def prefix_leaves(prefix: Any, tree: Any, where: str = "prefix") -> list:
    """One leaf of ``prefix`` (None is one) per leaf of ``tree``, of whose form it is the top."""
    leaves, form = default_registry.flatten(prefix, lambda x: x is None)
    parts = flat_up_to(form, tree, where)
    out: list[Any] = []
    for leaf, part in zip(leaves, parts, strict=True):
        out += [leaf] * default_registry.flatten(part)[1].num_leaves
    return out


# --- jax.tree_util --------------------------------------------------------------------------------
def _stops(is_leaf: Callable | None, takes_path: bool) -> Callable | None:
    return (lambda x: is_leaf((), x)) if takes_path and is_leaf else is_leaf


def tree_flatten(tree: Any, is_leaf: Callable | None = None) -> tuple[list, PyTreeDef]:
    """(leaves, treedef)."""
    leaves, form = default_registry.flatten(tree, is_leaf)
    return leaves, PyTreeDef(form)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable) -> Any:
    """The tree of that form with these leaves."""
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable | None = None) -> list:
    """The leaves in order."""
    return default_registry.flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable | None = None) -> PyTreeDef:
    """The form."""
    return PyTreeDef(default_registry.flatten(tree, is_leaf)[1])


def tree_map(f: Callable, tree: Any, *rest: Any, is_leaf: Callable | None = None) -> Any:
    """``f`` of the leaves of ``tree``, and of what the others have at their places."""
    leaves, form = default_registry.flatten(tree, is_leaf)
    others = [flat_up_to(form, r) for r in rest]
    return form.build(iter([f(*row) for row in zip(leaves, *others, strict=True)]))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
) -> tuple[list, PyTreeDef]:
    """([(path, leaf)], treedef)."""
    stop = _stops(is_leaf, is_leaf_takes_path)
    return list(default_registry.paths(tree, stop)), tree_structure(tree, stop)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
) -> list:
    """[(path, leaf)]."""
    return list(default_registry.paths(tree, _stops(is_leaf, is_leaf_takes_path)))


def tree_map_with_path(
    f: Callable, tree: Any, *rest: Any, is_leaf: Callable | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:  # fmt: skip
    """As ``tree_map``; ``f`` is given the path, too."""
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [flat_up_to(treedef.form, r) for r in rest]
    rows = zip(pairs, *others, strict=True)
    return treedef.unflatten([f(path, leaf, *more) for (path, leaf), *more in rows])


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A path as text."""
    return separator.join(str(_name(k)) if simple else str(k) for k in keys)


def _name(key: Any) -> Any:
    return next((getattr(key, n) for n in ("key", "idx", "name") if hasattr(key, n)), key)


def tree_reduce(
    function: Callable, tree: Any, initializer: Any = _NONE, is_leaf: Callable | None = None
) -> Any:
    """``functools.reduce`` over the leaves."""
    more = () if initializer is _NONE else (initializer,)
    return functools.reduce(function, tree_leaves(tree, is_leaf), *more)


def tree_reduce_associative(
    operation: Callable, tree: Any, *, identity: Any = _NONE, is_leaf: Callable | None = None
) -> Any:
    """The leaves combined in pairs."""
    row = tree_leaves(tree, is_leaf)
    if not row:
        if identity is _NONE:
            raise ValueError("Must specify identity for parallel reduction of empty tree.")
        return identity
    while len(row) > 1:
        pairs = [operation(*row[i : i + 2]) for i in range(0, len(row) - 1, 2)]
        row = pairs + row[len(row) & ~1 :]
    return row[0]


def tree_all(tree: Any, *, is_leaf: Callable | None = None) -> bool:
    """Whether all leaves are true."""
    return all(tree_leaves(tree, is_leaf))


def all_leaves(iterable: Iterable, is_leaf: Callable | None = None) -> bool:
    """Whether each is a leaf."""
    return all(
        (is_leaf is not None and is_leaf(x)) or default_registry.rule(x) is None for x in iterable
    )


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """A tree of ``outer``'s form of trees of ``inner``'s, the other way round."""
    outer, inner, tree = outer_treedef, inner_treedef, pytree_to_transpose
    parts = outer.flatten_up_to(tree)
    if inner is None:
        inner = tree_structure(parts[0])
    if not outer.num_leaves or not inner.num_leaves:
        raise TypeError("Mismatch: tree_transpose needs trees with leaves")
    whole = outer.compose(inner)
    if tree_structure(tree) != whole:
        raise TypeError(f"Expected {whole}, got {tree_structure(tree)}.")
    rows = [inner.flatten_up_to(p) for p in parts]
    return inner.unflatten([outer.unflatten(column) for column in zip(*rows, strict=True)])


def tree_broadcast(prefix: Any, tree: Any, is_leaf: Callable | None = None) -> Any:
    """The leaves of ``prefix`` at all places of ``tree`` that are below theirs."""
    leaves, form = default_registry.flatten(prefix, is_leaf)
    out: list[Any] = []
    for leaf, part in zip(leaves, flat_up_to(form, tree), strict=True):
        out += [leaf] * len(tree_leaves(part, is_leaf))
    return tree_structure(tree, is_leaf).unflatten(out)


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The form of a tuple of trees of these forms."""
    forms = tuple(t.form for t in treedefs)
    return PyTreeDef(Definition(tuple, None, forms, default_registry.rules[tuple]))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The forms of the root's children."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether it has one node."""
    return treedef.num_nodes == 1


def flatten_one_level(tree: Any) -> tuple:
    """(children, aux data)."""
    apart = default_registry.apart(tree)
    if apart is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return list(apart[0]), apart[1]


def is_tree_node(typ: type) -> bool:
    """Whether values of that type are no leaves."""
    return typ in default_registry.rules or hasattr(typ, "_fields")


# --- registering ----------------------------------------------------------------------------------
def register_pytree_node(
    nodetype: type, flatten_func: Callable, unflatten_func: Callable,
    flatten_with_keys_func: Callable | None = None,
) -> None:  # fmt: skip
    """Make a type a node."""
    for given in (flatten_func, unflatten_func):
        if not callable(given):
            raise TypeError(
                "register_node(): incompatible function arguments; functions are needed to take "
                f"{nodetype} apart and to put it together, {given!r} given"
            )
    keys = None
    if flatten_with_keys_func is not None:
        with_keys = flatten_with_keys_func

        def keys(x: Any) -> list:
            return [k for k, _ in with_keys(x)[0]]

    default_registry.register(nodetype, Rule(flatten_func, unflatten_func, keys))


def register_pytree_node_class(cls: Any) -> Any:
    """Make a class with ``tree_flatten`` and ``tree_unflatten`` a node."""
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type, flatten_with_keys: Callable, unflatten_func: Callable,
    flatten_func: Callable | None = None,
) -> None:  # fmt: skip
    """Make a type a node whose children have keys."""

    def flatten(x: Any) -> tuple:
        pairs, data = flatten_with_keys(x)
        return [child for _, child in pairs], data

    register_pytree_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Any) -> Any:
    """Make a class with ``tree_flatten_with_keys`` and ``tree_unflatten`` a node."""
    plain = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    with_keys = operator.methodcaller("tree_flatten_with_keys")
    register_pytree_with_keys(cls, with_keys, cls.tree_unflatten, plain)
    return cls


def register_dataclass(
    nodetype: Any, data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Make a dataclass a node: ``data_fields`` are its children, ``meta_fields`` of its form."""
    if nodetype is None or not isinstance(nodetype, type):
        return functools.partial(register_dataclass, data_fields=data_fields)
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is "
            f"specified. Got {data_fields=} {meta_fields=}."
        )
    known = dataclasses.fields(nodetype) if dataclasses.is_dataclass(nodetype) else ()
    if data_fields is None or meta_fields is None:
        if not dataclasses.is_dataclass(nodetype):
            raise TypeError(
                "register_dataclass: data_fields and meta_fields are required when nodetype is not "
                f"a dataclass. Got {nodetype=}."
            )
        data_fields = [f.name for f in known if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in known if f.metadata.get("static", False)]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if dataclasses.is_dataclass(nodetype):
        _check_fields({f.name for f in known if f.init} - set(drop_fields), {*data, *meta})
    if both := set(data) & set(meta):
        raise ValueError(
            f"data_fields and meta_fields must not overlap. Overlapping fields: {both}."
        )

    def flatten(x: Any) -> tuple:
        return tuple(getattr(x, n) for n in data), tuple(getattr(x, n) for n in meta)

    def unflatten(aux: tuple, children: Sequence) -> Any:
        return nodetype(
            **dict(zip(meta, aux, strict=True)), **dict(zip(data, children, strict=True))
        )

    rule = Rule(flatten, unflatten, lambda x: [GetAttrKey(n) for n in data])
    default_registry.register(nodetype, rule)
    return nodetype


def _check_fields(needed: set, given: set) -> None:
    if given == needed:
        return
    said = (
        "data_fields and meta_fields must include all dataclass fields with ``init=True`` and only "
        "them."
    )
    if missing := needed - given:
        said += f" Missing fields: {missing}. Add them to drop_fields to suppress this error."
    if unexpected := given - needed:
        said += f" Unexpected fields: {unexpected}."
    raise ValueError(said)


def register_static(cls: Any) -> Any:
    """Make a class a node without children, the whole of which is part of the form."""
    default_registry.register(cls, Rule(lambda x: ((), x), lambda x, _: x))
    return cls


class Partial(functools.partial):
    """``functools.partial`` as a node: its arguments are children."""


default_registry.register(
    Partial,
    Rule(lambda p: ((p.args, p.keywords), p.func), lambda f, xs: Partial(f, *xs[0], **xs[1])),
)

_KEYS = ("DictKey", "FlattenedIndexKey", "GetAttrKey", "SequenceKey")
_OWN = """
KeyEntry KeyPath Partial PyTreeDef all_leaves default_registry flatten_one_level
flatten_one_level_with_keys is_tree_node keystr
register_dataclass register_pytree_node register_pytree_node_class register_pytree_with_keys
register_pytree_with_keys_class register_static tree_all tree_broadcast tree_flatten
tree_flatten_with_path tree_leaves tree_leaves_with_path tree_map tree_map_with_path tree_reduce
tree_reduce_associative tree_structure tree_transpose tree_unflatten treedef_children
treedef_is_leaf treedef_tuple
"""


def flatten_one_level_with_keys(tree: Any) -> tuple:
    """([(key, child)], aux data)."""
    children, data = flatten_one_level(tree)
    rule = default_registry.rule(tree)
    assert rule is not None
    return list(zip(default_registry.keys(tree, rule, len(children)), children, strict=True)), data


NAMES = {  # of jax.tree_util
    **{n: getattr(native, n) for n in _KEYS},
    **{n: globals()[n] for n in _OWN.split()},
}
# Of jax.tree: the same without "tree_".
SHORT = {n.removeprefix("tree_"): f for n, f in NAMES.items() if n.startswith("tree_")}


def __getattr__(name: str) -> Any:
    if name in _KEYS:
        return NAMES[name]
    if name in SHORT:
        return SHORT[name]
    raise AttributeError(f"jax.tree has no {name!r}")
