"""Nested containers as trees: flatten, unflatten, map. Leaves are whatever is no container.

Containers are tuple (and namedtuple), list, dict (and subclasses, in insertion order), None as an
empty tree, and dataclass instances registered by ``register``.

A ``Registry`` has kinds of its own, and gives the form of a tree as a ``Definition``: what JAX's
users know as pytrees.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


def map(fn: Callable, tree: object, *rest: object) -> Any:  # noqa: A001  (the field's name for it)
    """Apply ``fn`` to the leaves of ``tree`` (and, in step, of trees of the same structure)."""
    values, unflatten = flatten(tree)
    others = [leaves(r) for r in rest]
    return unflatten([fn(*row) for row in zip(values, *others, strict=True)])


# --- definitions: what remains of a tree without its leaves -----------------------------------
@dataclass(frozen=True)
class SequenceKey:
    """A step of a path to a leaf: an element by its number."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@dataclass(frozen=True)
class DictKey:
    """A step of a path: a value by its key."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A step of a path: an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True)
class FlattenedIndexKey:
    """A step of a path: a child of a node that says no more of it than its number."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


class Rule(NamedTuple):
    """How a kind of node is taken apart, (children, aux data), and put together from (aux data,
    children); ``keys`` gives a key for each child (None: they are numbered), ``title`` the name of
    the kind in print."""

    flatten: Callable[[Any], tuple[Any, Any]]
    unflatten: Callable[[Any, Any], Any]
    keys: Callable[[Any], Sequence] | None = None
    title: str | None = None


class Definition:
    """The form of a tree: its kind, what the node says besides (``data``), its children's. Equal
    where the forms are, and fit as a key. A leaf has no rule; None is a node without children."""

    __slots__ = ("_hash", "children", "data", "kind", "num_leaves", "num_nodes", "rule")

    num_leaves: int
    num_nodes: int

    def __init__(
        self, kind: type | None, data: Any, children: tuple[Definition, ...], rule: Rule | None
    ) -> None:
        self.kind, self.data, self.children, self.rule = kind, data, children, rule
        self._hash: int | None = None
        leaves, nodes = int(rule is None), 1
        for c in children:
            leaves += c.num_leaves
            nodes += c.num_nodes
        self.num_leaves, self.num_nodes = leaves, nodes

    @property
    def is_leaf(self) -> bool:
        """Whether it is a lone leaf."""
        return self.rule is None

    def build(self, leaves: Iterator[Any]) -> Any:
        """The tree of this form with the next of ``leaves``."""
        rule = self.rule
        if rule is None:
            return next(leaves)
        return rule.unflatten(self.data, tuple([c.build(leaves) for c in self.children]))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this form with these leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            few = len(given) < self.num_leaves
            said = f"expected {self.num_leaves}" + (f", got {len(given)}" if few else ".")
            raise ValueError(f"Too {'few' if few else 'many'} leaves for PyTreeDef; {said}")
        return self.build(iter(given))

    def compose(self, inner: Definition) -> Definition:
        """This form with ``inner`` in place of each leaf."""
        if self.rule is None:
            return inner
        made = tuple(c.compose(inner) for c in self.children)
        return Definition(self.kind, self.data, made, self.rule)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Definition):
            return NotImplemented
        return (
            self.kind is other.kind
            and self.num_nodes == other.num_nodes
            and self.data == other.data
            and self.children == other.children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            data = tuple(self.data) if isinstance(self.data, list) else self.data
            self._hash = hash((self.kind, data, self.children))
        return self._hash

    def __str__(self) -> str:
        inside = [str(c) for c in self.children]
        if self.rule is None:
            return "*"
        if self.kind is type(None):
            return "None"
        if self.kind is dict:
            pairs = zip(self.data, inside, strict=True)
            return f"{{{', '.join(f'{k!r}: {v}' for k, v in pairs)}}}"
        if self.kind is tuple:
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        if self.kind is list:
            return f"[{', '.join(inside)}]"
        title = self.rule.title or getattr(self.kind, "__name__", str(self.kind))
        said = self.kind.__name__ if title == "namedtuple" and self.kind else self.data
        return f"CustomNode({title}[{said}], [{', '.join(inside)}])"


LEAF = Definition(None, None, (), None)


def _sorted_keys(d: dict) -> list:
    try:
        return sorted(d)
    except TypeError as error:
        raise ValueError(
            "Comparator raised exception while sorting pytree dictionary keys."
        ) from error


def _sorted_items(d: dict) -> tuple[list, list]:
    if not d:
        return [], []
    keys = _sorted_keys(d)
    return [d[k] for k in keys], keys


def _defaults(d: defaultdict) -> tuple:
    keys = _sorted_keys(d)
    return [d[k] for k in keys], (d.default_factory, tuple(keys))


_NAMED = Rule(
    lambda t: (t, None),
    lambda kind, xs: kind(*xs),
    lambda t: [GetAttrKey(n) for n in t._fields],
    "namedtuple",
)


class Registry:
    """The kinds of nodes, by their exact types. Dicts are taken in the order of their keys; a named
    tuple is a node; any other type that is not registered is a leaf."""

    def __init__(self) -> None:
        self.rules: dict[type, Rule] = {
            type(None): Rule(lambda _: ((), None), lambda _, xs: None),
            tuple: Rule(lambda t: (t, None), lambda _, xs: tuple(xs)),
            list: Rule(lambda t: (t, None), lambda _, xs: list(xs)),
            dict: Rule(
                _sorted_items,
                lambda keys, xs: dict(zip(keys, xs, strict=True)),
                lambda d: [DictKey(k) for k in _sorted_keys(d)],
            ),
            OrderedDict: Rule(
                lambda d: (list(d.values()), tuple(d)),
                lambda keys, xs: OrderedDict(zip(keys, xs, strict=True)),
                lambda d: [DictKey(k) for k in d],
            ),
            defaultdict: Rule(
                _defaults,
                lambda data, xs: defaultdict(data[0], zip(data[1], xs, strict=True)),
                lambda d: [DictKey(k) for k in _sorted_keys(d)],
            ),
        }

    def register(self, kind: type, rule: Rule) -> None:
        """Make ``kind`` a node."""
        if kind in self.rules:
            raise ValueError(f"Duplicate custom PyTreeDef type registration for {kind}.")
        self.rules[kind] = rule

    def rule(self, value: Any) -> Rule | None:
        """That of the kind of ``value``; None for a leaf."""
        kind = type(value)
        found = self.rules.get(kind)
        if found is None and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _NAMED._replace(unflatten=lambda _, xs: kind(*xs))
        return found

    def apart(self, value: Any) -> tuple[tuple, Any, Rule] | None:
        """The children of a node, what it says besides, and its rule; None for a leaf."""
        rule = self.rule(value)
        if rule is None:
            return None
        children, data = rule.flatten(value)
        return tuple(children), data, rule

    def keys(self, value: Any, rule: Rule, count: int) -> list:
        """A key for each of ``count`` children of a node."""
        if rule.keys is not None:
            return list(rule.keys(value))
        if type(value) in (tuple, list):
            return [SequenceKey(i) for i in range(count)]
        return [FlattenedIndexKey(i) for i in range(count)]

    def flatten(
        self, tree: Any, is_leaf: Callable[[Any], bool] | None = None
    ) -> tuple[list, Definition]:
        """The leaves in order, and the form."""
        leaves: list[Any] = []
        return leaves, self._walk(tree, leaves, is_leaf)

    def _walk(self, tree: Any, leaves: list, is_leaf: Callable[[Any], bool] | None) -> Definition:
        rule = self.rules.get(type(tree))
        if rule is None and isinstance(tree, tuple):
            rule = self.rule(tree)
        if rule is None or (is_leaf is not None and is_leaf(tree)):
            leaves.append(tree)
            return LEAF
        children, data = rule.flatten(tree)
        inside = tuple([self._walk(c, leaves, is_leaf) for c in children])
        return Definition(type(tree), data, inside, rule)

    def paths(
        self, tree: Any, is_leaf: Callable[[Any], bool] | None = None, path: tuple = ()
    ) -> Iterator[tuple[tuple, Any]]:
        """(path, leaf) for each leaf in order; a path is a tuple of keys."""
        found = None if is_leaf is not None and is_leaf(tree) else self.apart(tree)
        if found is None:
            yield path, tree
            return
        children, _, rule = found
        for key, child in zip(self.keys(tree, rule, len(children)), children, strict=True):
            yield from self.paths(child, is_leaf, (*path, key))
