"""Kinds of nodes, by which trees are taken apart and put together: what is a container is told."""

from __future__ import annotations

import difflib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from .definitions import Definition, DictKey, FlattenedIndexKey, GetAttrKey, Rule, SequenceKey


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
    tuple is a node; any other type that is not registered is a leaf. ``definition``: the class of
    forms."""

    def __init__(self, definition: type[Definition] = Definition) -> None:
        self.definition, self.leaf = definition, definition(None, None, (), None)
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
            raise ValueError(
                f"Duplicate custom {self.definition.__name__} type registration for {kind}."
            )
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
            return self.leaf
        children, data = rule.flatten(tree)
        inside = tuple([self._walk(c, leaves, is_leaf) for c in children])
        return self.definition(type(tree), data, inside, rule)

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

    def up_to(self, form: Definition, tree: Any, where: str = "tree_map tree") -> list:
        """The subtrees of ``tree`` where ``form`` has leaves; ``ValueError`` where they differ."""
        found: list[Any] = []
        self._up_to(form, tree, found, where)
        return found

    def _up_to(self, form: Definition, tree: Any, found: list, where: str) -> None:
        if form.is_leaf:
            found.append(tree)
            return
        apart = self.apart(tree) if type(tree) is form.kind else None
        head = (
            f"pytree structure error: different {{}} at key path\n    {where}\nAt that key path, "
        )
        if apart is None:
            raise ValueError(
                f"{head.format('types')}the prefix pytree {_root(where)} has a subtree of type\n "
                "   "
                f"{form.kind}\nbut at the same key path the full pytree has a subtree of different "
                f"type\n    {type(tree)}."
            )
        children, data, rule = apart
        if len(children) != len(form.parts) and form.kind in (tuple, list):
            name = type(tree).__name__
            raise ValueError(
                f"{head.format(f'lengths of {name}')}the prefix pytree {_root(where)} has a "
                "subtree of "
                f"type {name} of length {len(form.parts)}, but the full pytree has a subtree of "
                "the "
                f"same type but of length {len(children)}."
            )
        if data != form.data or len(children) != len(form.parts):
            one, two = (str(tuple(d) if isinstance(d, list) else d) for d in (form.data, data))
            diff = "\n".join("    " + x for x in difflib.ndiff([one], [two]))
            raise ValueError(
                f"{head.format('pytree metadata')}the prefix pytree {_root(where)} has a subtree "
                "of "
                f"type\n    {form.kind}\nwith metadata\n    {one}\nbut at the same key path the "
                "full "
                f"pytree has a subtree of the same type but with metadata\n    {two}\nso the "
                "diff in "
                f"the metadata at these pytree nodes is\n{diff}"
            )
        keys = self.keys(tree, rule, len(children))
        for key, sub, child in zip(keys, form.parts, children, strict=True):
            self._up_to(sub, child, found, f"{where}{key}")

    def prefix(self, prefix: Any, tree: Any, where: str = "prefix") -> list:
        """One leaf of ``prefix`` (None is one) per leaf of ``tree``, whose form begins so."""
        leaves, form = self.flatten(prefix, lambda x: x is None)
        parts = self.up_to(form, tree, where)
        out: list[Any] = []
        for leaf, part in zip(leaves, parts, strict=True):
            out += [leaf] * self.flatten(part)[1].num_leaves
        return out


def _root(where: str) -> str:
    return where.partition("[")[0].partition(".")[0]
