"""Nested state dicts as flat ones, ``{"model.0.weight": ...}``, and back.

A path is a tuple of keys; a place in a list is an ``Index``, so that it is told from a number that
is a key of a dict. Knows Tensors only to look for them in lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ....core import Tensor
from ....errors import ConfigError
from ..metadata import Metadata
from .pieces import is_tensor

Path = tuple[Any, ...]


class Index(int):
    """A place in a list."""


def flatten_state_dict(
    state_dict: Mapping[str, Any], empty: bool = False
) -> tuple[dict[str, Any], dict[str, Path]]:
    """The values of ``state_dict`` by flat names, and the path of each. Lists are taken apart where
    they hold tensors or dicts; tuples are values. ``empty``: dicts without content are values,
    too."""
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for path, value in _leaves((), state_dict, empty):
        name = ".".join(map(str, path))
        if name in flat:
            raise ConfigError(
                f"checkpoint: two values have the name {name!r}: those at {list(paths[name])} and "
                f"at {list(path)}; rename a key (duplicated flatten key {name})"
            )
        flat[name], paths[name] = value, path
    return flat, paths


def _leaves(path: Path, value: object, empty: bool) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and (value or not path or not empty):
        for key, inner in value.items():
            plain = key if type(key) in (str, int) else str(key)
            yield from _leaves((*path, plain), inner, empty)
    elif isinstance(value, list) and _has_parts(value):
        for i, inner in enumerate(value):
            yield from _leaves((*path, Index(i)), inner, empty)
    else:
        yield path, value


def _has_parts(value: list) -> bool:
    return any(
        isinstance(v, (Tensor, Mapping)) or is_tensor(v) or (isinstance(v, list) and _has_parts(v))
        for v in value
    )


def paths_of(metadata: Metadata) -> dict[str, Path]:
    """The path of every flat name, where the planner that saved has kept them."""
    data = metadata.planner_data
    return data if isinstance(data, dict) else {}


def set_element(root: dict, path: Path, value: object) -> None:
    """Put ``value`` at ``path`` of the nested ``root``; containers that are missing are made."""
    for key, after in pairwise(path):
        found = _get(root, key)
        if found is None:
            found = [] if isinstance(after, Index) else {}
            _put(root, key, found)
        root = found
    _put(root, path[-1], value)


def _get(container: Any, key: Any) -> Any:
    if isinstance(container, list):
        return container[key] if key < len(container) else None
    return container.get(key)


def _put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, list):
        container.extend([None] * (key + 1 - len(container)))
    container[key] = value
