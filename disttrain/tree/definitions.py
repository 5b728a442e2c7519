"""What remains of a tree without its leaves: its ``Definition``, and keys, the steps of paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


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

    __slots__ = ("_hash", "data", "kind", "num_leaves", "num_nodes", "parts", "rule")

    num_leaves: int
    num_nodes: int

    def __init__(
        self, kind: type | None, data: Any, parts: tuple[Definition, ...], rule: Rule | None
    ) -> None:
        self.kind, self.data, self.parts, self.rule = kind, data, parts, rule
        self._hash: int | None = None
        leaves, nodes = int(rule is None), 1
        for c in parts:
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
        return rule.unflatten(self.data, tuple([c.build(leaves) for c in self.parts]))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this form with these leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            few = len(given) < self.num_leaves
            said = f"expected {self.num_leaves}" + (f", got {len(given)}" if few else ".")
            raise ValueError(
                f"Too {'few' if few else 'many'} leaves for {type(self).__name__}; {said}"
            )
        return self.build(iter(given))

    def children(self) -> list[Definition]:
        """The forms of the root's children."""
        return list(self.parts)

    def node_data(self) -> tuple | None:
        """(type, what it says besides) of the root; None for a leaf."""
        return None if self.rule is None else (self.kind, self.data)

    def walk(self, node: Callable, leaf: Callable | None, leaves: Iterable) -> Any:
        """Put a tree together by ``node(children, data)`` and ``leaf``."""
        given = iter(leaves)
        if self.rule is None:
            value = next(given)
            return value if leaf is None else leaf(value)
        return node(tuple([c.walk(node, leaf, given) for c in self.parts]), self.data)

    def compose(self, inner: Definition) -> Definition:
        """This form with ``inner`` in place of each leaf."""
        if self.rule is None:
            return inner
        made = tuple(c.compose(inner) for c in self.parts)
        return type(self)(self.kind, self.data, made, self.rule)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Definition):
            return NotImplemented
        return (
            self.kind is other.kind
            and self.num_nodes == other.num_nodes
            and self.data == other.data
            and self.parts == other.parts
        )

    def __hash__(self) -> int:
        if self._hash is None:
            data = tuple(self.data) if isinstance(self.data, list) else self.data
            self._hash = hash((self.kind, data, self.parts))
        return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({Definition.__str__(self)})"

    def __str__(self) -> str:
        inside = [Definition.__str__(c) for c in self.parts]
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
