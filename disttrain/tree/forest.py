"""The functions of trees over a registry: maps, reductions, transposition, paths; and the ways to
make types nodes."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .definitions import Definition, GetAttrKey, Rule
from .registry import Registry

_NONE = object()


class Partial(functools.partial):
    """``functools.partial`` as a node: its arguments are children."""


_PARTIAL = Rule(lambda p: ((p.args, p.keywords), p.func), lambda f, xs: Partial(f, *xs[0], **xs[1]))


def _stops(is_leaf: Callable | None, takes_path: bool) -> Callable | None:
    return (lambda x: is_leaf((), x)) if takes_path and is_leaf else is_leaf


def keystr(keys: tuple, *, simple: bool = False, separator: str = "") -> str:
    """A path as text."""
    return separator.join(str(_name(k)) if simple else str(k) for k in keys)


def _name(key: Any) -> Any:
    return next((getattr(key, n) for n in ("key", "idx", "name") if hasattr(key, n)), key)


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


class Forest(Registry):
    """Trees whose containers are the registry's."""

    def __init__(self, definition: type[Definition] = Definition) -> None:
        super().__init__(definition)
        self.register(Partial, _PARTIAL)

    def leaves(self, tree: Any, is_leaf: Callable | None = None) -> list:
        """The leaves in order."""
        return self.flatten(tree, is_leaf)[0]

    def structure(self, tree: Any, is_leaf: Callable | None = None) -> Definition:
        """The form."""
        return self.flatten(tree, is_leaf)[1]

    def map(self, f: Callable, tree: Any, *rest: Any, is_leaf: Callable | None = None) -> Any:
        """``f`` of the leaves of ``tree``, and of what the others have at their places."""
        leaves, form = self.flatten(tree, is_leaf)
        others = [self.up_to(form, r) for r in rest]
        return form.build(iter([f(*row) for row in zip(leaves, *others, strict=True)]))

    def flatten_with_path(
        self, tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
    ) -> tuple[list, Definition]:
        """([(path, leaf)], treedef)."""
        stop = _stops(is_leaf, is_leaf_takes_path)
        return list(self.paths(tree, stop)), self.structure(tree, stop)

    def leaves_with_path(
        self, tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
    ) -> list:
        """[(path, leaf)]."""
        return list(self.paths(tree, _stops(is_leaf, is_leaf_takes_path)))

    def map_with_path(
        self, f: Callable, tree: Any, *rest: Any, is_leaf: Callable | None = None,
        is_leaf_takes_path: bool = False,
    ) -> Any:  # fmt: skip
        """As ``tree_map``; ``f`` is given the path, too."""
        pairs, treedef = self.flatten_with_path(tree, is_leaf, is_leaf_takes_path)
        others = [self.up_to(treedef, r) for r in rest]
        rows = zip(pairs, *others, strict=True)
        return treedef.unflatten([f(path, leaf, *more) for (path, leaf), *more in rows])

    def reduce(
        self,
        function: Callable,
        tree: Any,
        initializer: Any = _NONE,
        is_leaf: Callable | None = None,
    ) -> Any:
        """``functools.reduce`` over the leaves."""
        more = () if initializer is _NONE else (initializer,)
        return functools.reduce(function, self.leaves(tree, is_leaf), *more)

    def reduce_associative(
        self,
        operation: Callable,
        tree: Any,
        *,
        identity: Any = _NONE,
        is_leaf: Callable | None = None,
    ) -> Any:
        """The leaves combined in pairs."""
        row = self.leaves(tree, is_leaf)
        if not row:
            if identity is _NONE:
                raise ValueError("Must specify identity for parallel reduction of empty tree.")
            return identity
        while len(row) > 1:
            pairs = [operation(*row[i : i + 2]) for i in range(0, len(row) - 1, 2)]
            row = pairs + row[len(row) & ~1 :]
        return row[0]

    def all(self, tree: Any, *, is_leaf: Callable | None = None) -> bool:
        """Whether all leaves are true."""
        return all(self.leaves(tree, is_leaf))

    def all_leaves(self, iterable: Iterable, is_leaf: Callable | None = None) -> bool:
        """Whether each is a leaf."""
        return all((is_leaf is not None and is_leaf(x)) or self.rule(x) is None for x in iterable)

    def transpose(
        self, outer_treedef: Definition, inner_treedef: Definition | None, pytree_to_transpose: Any
    ) -> Any:
        """A tree of ``outer``'s form of trees of ``inner``'s, the other way round."""
        outer, inner, tree = outer_treedef, inner_treedef, pytree_to_transpose
        parts = self.up_to(outer, tree)
        if inner is None:
            inner = self.structure(parts[0])
        if not outer.num_leaves or not inner.num_leaves:
            raise TypeError("Mismatch: tree_transpose needs trees with leaves")
        whole = outer.compose(inner)
        if self.structure(tree) != whole:
            raise TypeError(f"Expected {whole}, got {self.structure(tree)}.")
        rows = [self.up_to(inner, p) for p in parts]
        return inner.unflatten([outer.unflatten(column) for column in zip(*rows, strict=True)])

    def broadcast(self, prefix: Any, tree: Any, is_leaf: Callable | None = None) -> Any:
        """The leaves of ``prefix`` at all places of ``tree`` that are below theirs."""
        leaves, form = self.flatten(prefix, is_leaf)
        out: list[Any] = []
        for leaf, part in zip(leaves, self.up_to(form, tree), strict=True):
            out += [leaf] * len(self.leaves(part, is_leaf))
        return self.structure(tree, is_leaf).unflatten(out)

    def tuple_of(self, treedefs: Iterable[Definition]) -> Definition:
        """The form of a tuple of trees of these forms."""
        forms = tuple(treedefs)
        return self.definition(tuple, None, forms, self.rules[tuple])

    def flatten_one_level(self, tree: Any) -> tuple:
        """(children, aux data)."""
        apart = self.apart(tree)
        if apart is None:
            raise ValueError(f"can't tree-flatten type: {type(tree)}")
        return list(apart[0]), apart[1]

    def is_tree_node(self, typ: type) -> bool:
        """Whether values of that type are no leaves."""
        return typ in self.rules or hasattr(typ, "_fields")

    def register_node(
        self, nodetype: type, flatten_func: Callable, unflatten_func: Callable,
        flatten_with_keys_func: Callable | None = None,
    ) -> None:  # fmt: skip
        """Make a type a node."""
        for given in (flatten_func, unflatten_func):
            if not callable(given):
                raise TypeError(
                    "register_node(): incompatible function arguments; functions are needed to "
                    "take "
                    f"{nodetype} apart and to put it together, {given!r} given"
                )
        keys = None
        if flatten_with_keys_func is not None:
            with_keys = flatten_with_keys_func

            def keys(x: Any) -> list:
                return [k for k, _ in with_keys(x)[0]]

        self.register(nodetype, Rule(flatten_func, unflatten_func, keys))

    def register_class(self, cls: Any) -> Any:
        """Make a class with ``tree_flatten`` and ``tree_unflatten`` a node."""
        self.register_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
        return cls

    def register_with_keys(
        self, nodetype: type, flatten_with_keys: Callable, unflatten_func: Callable,
        flatten_func: Callable | None = None,
    ) -> None:  # fmt: skip
        """Make a type a node whose children have keys."""

        def flatten(x: Any) -> tuple:
            pairs, data = flatten_with_keys(x)
            return [child for _, child in pairs], data

        self.register_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)

    def register_class_with_keys(self, cls: Any) -> Any:
        """Make a class with ``tree_flatten_with_keys`` and ``tree_unflatten`` a node."""
        plain = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
        with_keys = operator.methodcaller("tree_flatten_with_keys")
        self.register_with_keys(cls, with_keys, cls.tree_unflatten, plain)
        return cls

    def register_dataclass(
        self, nodetype: Any, data_fields: Sequence[str] | None = None,
        meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = (),
    ) -> Any:  # fmt: skip
        """Make a dataclass a node: ``data_fields`` are children, ``meta_fields`` of its form."""
        if nodetype is None or not isinstance(nodetype, type):
            return functools.partial(self.register_dataclass, data_fields=data_fields)
        if (data_fields is None) != (meta_fields is None):
            raise TypeError(
                "register_dataclass: data_fields and meta_fields must both be specified when "
                "either is "
                f"specified. Got {data_fields=} {meta_fields=}."
            )
        known = dataclasses.fields(nodetype) if dataclasses.is_dataclass(nodetype) else ()
        if data_fields is None or meta_fields is None:
            if not dataclasses.is_dataclass(nodetype):
                raise TypeError(
                    "register_dataclass: data_fields and meta_fields are required when nodetype "
                    "is not "
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
        self.register(nodetype, rule)
        return nodetype

    def register_static(self, cls: Any) -> Any:
        """Make a class a node without children, the whole of which is part of the form."""
        self.register(cls, Rule(lambda x: ((), x), lambda x, _: x))
        return cls

    def flatten_one_level_with_keys(self, tree: Any) -> tuple:
        """([(key, child)], aux data)."""
        children, data = self.flatten_one_level(tree)
        rule = self.rule(tree)
        assert rule is not None
        return list(zip(self.keys(tree, rule, len(children)), children, strict=True)), data
