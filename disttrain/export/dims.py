"""Dimensions whose size may change: their names and ranges, and where they stand in the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import ConfigError


class Dim:
    """A dimension whose size may change from call to call, by its name. ``min``, ``max``: the sizes
    that are allowed; ``max=None``: any."""

    AUTO: Any
    DYNAMIC: Any
    STATIC: Any

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:  # noqa: A002
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"Dim: name={name!r} given; a name as of a variable is needed")
        self.name, self.given = name, (min is not None, max is not None)
        self.min, self.max = 1 if min is None else int(min), None if max is None else int(max)
        if self.min < 0 or (self.max is not None and self.max < self.min):
            raise ConfigError(f"Dim {name}: min={min}, max={max} given; 0 <= min <= max is needed")

    @property
    def __name__(self) -> str:
        return self.name

    def range(self) -> str:
        """Its range in words."""
        return f"at least {self.min}" if self.max is None else f"{self.min} to {self.max}"

    def __repr__(self) -> str:
        most = "" if self.max is None else f", max={self.max}"
        return f"Dim({self.name!r}, min={self.min}{most})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and (self.name, self.min, self.max) == (
            other.name, other.min, other.max
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.name)


class Hint:
    """What a dimension is to be, without a name of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"Dim.{self.kind}"


Dim.AUTO, Dim.DYNAMIC, Dim.STATIC = Hint("AUTO"), Hint("DYNAMIC"), Hint("STATIC")


class Place:
    """One dimension of one input that is to be a symbol. ``asked``: by name or range, so that a
    program that fixes it is refused; else it is fixed then."""

    def __init__(self, leaf: int, dim: int, of: Dim, asked: bool) -> None:
        self.leaf, self.dim, self.of, self.asked = leaf, dim, of, asked


def places(spec: Any, tree: dict[str, Any], names: Sequence[str], leaves: Sequence) -> list[Place]:
    """The dimensions that ``spec`` (as ``export`` takes it) names. ``tree``: the arguments by name,
    with the numbers of tensors in place of these; ``names``: those of the tensors."""
    found: list[Place] = []
    if spec is None or spec is False:
        return found
    if spec is True:
        for i, t in enumerate(leaves):
            _take(dict.fromkeys(range(t.ndim), Dim.AUTO), t, i, names[i], found)
        return _one_each(found)
    for key, part in _by_name(spec, tree, names):
        at = tree[key] if key in tree else Leaf(list(names).index(key))
        _walk(part, at, key, leaves, found)
    return _one_each(found)


def _by_name(spec: Any, tree: dict[str, Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    if isinstance(spec, (list, tuple)):
        if len(spec) != len(tree):
            raise ConfigError(f"export: dynamic has {len(spec)} entries for {len(tree)} arguments "
                              f"({', '.join(tree)})")  # fmt: skip
        return list(zip(tree, spec, strict=True))
    if not isinstance(spec, dict):
        raise ConfigError(f"export: dynamic={spec!r:.80} given; a dict by names of arguments, or a "
                          "sequence by their positions is needed")  # fmt: skip
    order = list(tree)
    out = []
    for key, part in spec.items():
        name = order[key] if isinstance(key, int) and 0 <= key < len(order) else key
        if name not in tree and name not in names:
            raise ConfigError(f"export: dynamic names {key!r}; the arguments are "
                              f"{', '.join(map(repr, order))}")  # fmt: skip
        out.append((name, part))
    return out


def _walk(spec: Any, at: Any, where: str, leaves: Sequence, found: list[Place]) -> None:
    if spec is None:
        return
    if isinstance(at, Leaf):
        _take(spec, leaves[at.number], at.number, where, found)
        return
    if isinstance(at, dict) and isinstance(spec, dict):
        for key, part in spec.items():
            if key not in at:
                raise ConfigError(f"export: dynamic names {where}[{key!r}], which is not there")
            _walk(part, at[key], f"{where}[{key!r}]", leaves, found)
        return
    if isinstance(at, (list, tuple)) and isinstance(spec, (list, tuple)) and len(at) == len(spec):
        for i, part in enumerate(spec):
            _walk(part, at[i], f"{where}[{i}]", leaves, found)
        return
    raise ConfigError(
        f"export: dynamic of {where} is {spec!r:.80}, which does not fit the argument"
    )


class Leaf:
    """A tensor among arguments, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def _take(spec: Any, t: Tensor, leaf: int, where: str, found: list[Place]) -> None:
    """The dimensions of one tensor."""
    if isinstance(spec, (list, tuple)):
        if len(spec) != t.ndim:
            raise ConfigError(f"export: dynamic of {where} has {len(spec)} entries; the tensor has "
                              f"shape {list(t.shape)}")  # fmt: skip
        spec = dict(enumerate(spec))
    if not isinstance(spec, dict):
        raise ConfigError(f"export: dynamic of {where} is {spec!r:.80}; needed is {{dimension: "
                          "name}, or one entry for each dimension")  # fmt: skip
    for dim, what in spec.items():
        if not isinstance(dim, int) or not -t.ndim <= dim < t.ndim:
            raise ConfigError(f"export: dynamic of {where} names dimension {dim!r}; its shape is "
                              f"{list(t.shape)}")  # fmt: skip
        dim %= t.ndim
        if what is None or what is Dim.STATIC or (type(what) is int and what == t.shape[dim]):
            continue
        if isinstance(what, (str, Dim)):
            found.append(Place(leaf, dim, what if isinstance(what, Dim) else Dim(what), True))
        elif isinstance(what, Hint):
            name = f"{''.join(c if c.isalnum() else '_' for c in where)}_{dim}"
            found.append(Place(leaf, dim, Dim(name), what is Dim.DYNAMIC))
        else:
            raise ConfigError(f"export: dimension {dim} of {where} is {what!r} in dynamic; a name, "
                              f"a Dim or None is needed (its size is {t.shape[dim]})")  # fmt: skip


def _one_each(found: list[Place]) -> list[Place]:
    """Places of one name have one range."""
    known: dict[str, Dim] = {}
    for place in found:
        other = known.setdefault(place.of.name, place.of)
        if other != place.of:
            raise ConfigError(f"export: {other!r} and {place.of!r} have one name")
        place.of = other
    return found


__all__ = ["Dim", "Hint", "Leaf", "Place", "places"]
