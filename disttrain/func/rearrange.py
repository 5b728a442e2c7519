"""``rearrange``: dimensions put in order, split and joined, as a text says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import ConfigError
from ..ops.functions.views.join import stack
from ..ops.functions.views.shapes import permute, reshape

_DOTS = "..."
_TOKEN = re.compile(r"\s*(\.\.\.|[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[()]|\S)")


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """``tensor`` (several: stacked first) rearranged by ``pattern``, in the words of einops:
    "b (h w) c -> b c h w" with ``h=4`` splits, "b c h w -> b (c h w)" joins; "..." stands for any
    dimensions, 1 for one of size 1 that comes or goes."""
    if not isinstance(tensor, Tensor):
        tensor = stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ConfigError("rearrange: Pattern must contain a single '->' separator")
    left, right = (_parse(side) for side in sides)
    names = _checked(left, right, axes_lengths)
    left, right = (_spread(side, tensor.ndim, left) for side in (left, right))
    if len(left) != tensor.ndim:
        raise ConfigError(
            f"rearrange: Number of dimensions in pattern ({len(left)}) must be equal to the number "
            f"of dimensions in the tensor ({tensor.ndim})"
        )
    sizes = _sizes(left, tuple(tensor.shape), {n: axes_lengths[n] for n in names & {*axes_lengths}})
    order = [name for group in left for name in group]
    wanted = [name for group in right for name in group]
    x = reshape(tensor, tuple(sizes[name] for name in order))
    x = permute(x, tuple(order.index(name) for name in wanted))
    return reshape(x, tuple(math.prod(sizes[name] for name in group) for group in right))


def _parse(side: str) -> list[list[str]]:
    """The groups of a side: one name each, or those between brackets, without ones."""
    groups: list[list[str]] = []
    inside = False
    for token in _TOKEN.findall(side):
        if token in "()":
            if inside == (token == "("):
                raise ConfigError("rearrange: Brackets are not balanced")
            inside = not inside
            groups += [[]] if inside else []
        elif token.isdigit():
            if token != "1":
                raise ConfigError("rearrange: rearrange only supports unnamed axes of size 1")
            groups += [] if inside else [[]]
        elif token == _DOTS or token.isidentifier():
            if inside:
                groups[-1].append(token)
            else:
                groups.append([token])
        else:
            raise ConfigError(f"rearrange: Unknown character '{token}'")
    if inside:
        raise ConfigError("rearrange: Brackets are not balanced")
    return groups


def _checked(left: list, right: list, lengths: dict[str, int]) -> set[str]:
    """The names of the pattern, which stand once on each side."""
    found = []
    for groups in (left, right):
        names = [name for group in groups for name in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"rearrange: Indexing expression contains duplicate dimension '{twice[0]}'"
            )
        found.append(set(names))
    if found[0] != found[1]:
        raise ConfigError(
            "rearrange: Identifiers only on one side of rearrange expression (should be on both): "
            f"{sorted(found[0] ^ found[1])}"
        )
    if lengths.keys() - found[0]:
        raise ConfigError(
            "rearrange: Identifiers not found in rearrange expression: "
            f"{sorted(lengths.keys() - found[0])}"
        )
    return found[0]


def _spread(groups: list[list[str]], ndim: int, left: list[list[str]]) -> list[list[str]]:
    """``groups`` with names for the dimensions that the dots of ``left`` stand for."""
    count = ndim - len(left) + 1
    names = [f"{_DOTS}{i}" for i in range(count)]
    out: list[list[str]] = []
    for group in groups:
        if group == [_DOTS]:  # not between brackets: dimensions of their own
            out += [[name] for name in names]
        else:
            out.append([n for name in group for n in (names if name == _DOTS else [name])])
    return out


def _sizes(left: list[list[str]], shape: tuple[int, ...], known: dict[str, int]) -> dict[str, int]:
    """The size of each name; one of each group may follow from the others'."""
    sizes: dict[str, Any] = dict(known)
    for group, size in zip(left, shape, strict=True):
        open_ = [name for name in group if name not in sizes]
        if len(open_) > 1:
            raise ConfigError(
                f"rearrange: cannot infer the sizes of several dimensions at once: {open_}"
            )
        rest = math.prod(sizes[name] for name in group if name in sizes)
        if size % rest if open_ else size != rest:
            raise ConfigError(
                f"rearrange: a dimension of size {size} cannot be split into {group} with {known}"
            )
        if open_:
            sizes[open_[0]] = size // rest
    return sizes
