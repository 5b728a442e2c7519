"""Groups of some ranks of a group: who is in them, what they are called, how their members meet.

Knows the verbs of a group and its transport; ``ProcessGroup`` has these as methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..calls.header import hash64
from ..calls.transport import Swap
from ..calls.work import Together
from . import arguments as check

_LOCAL_TAGS_AT = 1 << 30  # above the tags that programs use by habit


@dataclass
class Made:
    """How many groups were made of a group: by all its ranks, and by their members alone."""

    by_all: int = 0
    alone: dict[tuple, int] = field(default_factory=dict)


def by_color(group: Any, color: int | None, key: int, members: Sequence[int] | None) -> Any:
    """Of the ranks of one ``color``, in order of ``key``, then rank; None for ``color=None``."""
    mine = np.array([-1 if color is None else color, key], np.int64)
    table = np.empty((group.size, 2), np.int64)
    group._made.by_all += 1
    call, begun = group._calls.get("split", mine)
    group.transport.all_gather(call, list(table), mine)
    group._calls.box.end(begun)
    order = sorted((int(k), i) for i, (c, k) in enumerate(table) if c == mine[0])
    found = [i for _, i in order]
    if members is not None and not group.transport.hears:
        found = list(members)
    name = f"{group.name}/{group._made.by_all}.{color}"
    return _connect(group, None if color is None else found, name)


def of_ranks(group: Any, ranks: Sequence[int], strict: bool | None, members_only: bool) -> Any:
    """Of the members ``ranks``, in that order; None for who is not among them."""
    ranks = check.members("new_group", "ranks", ranks, group.size)
    is_member = group.rank in ranks
    if members_only:
        return _of_members(group, tuple(ranks), strict) if is_member else None
    group._made.by_all += 1
    name = f"{group.name}/{group._made.by_all}"
    if _give_different_lists(group, ranks):
        name += f".{'+'.join(map(str, ranks))}"
    return _connect(group, ranks if is_member else None, name, (), strict)


def _give_different_lists(group: Any, ranks: Sequence[int]) -> bool:
    """Whether the ranks mean several groups. Their lists themselves go round only where these
    differ: in a large group they are large."""
    mine = np.array([hash64(str(ranks))], np.uint64).view(np.int64)
    hashes = _everyones(group, mine)
    if (hashes == mine).all():
        return False
    row = np.array([*ranks, *[-1] * (group.size - len(ranks))], np.int64)
    return check.lists_differ(group.name, _everyones(group, row).tolist())


def _everyones(group: Any, row: np.ndarray) -> np.ndarray:
    table = np.empty((group.size, row.size), np.int64)
    call, begun = group._calls.get("split", row)
    group.transport.all_gather(call, list(table), row)
    group._calls.box.end(begun)
    return table


def _of_members(group: Any, ranks: tuple, strict: bool | None) -> Any:
    """The members find each other by messages."""
    alone = group._made.alone
    number = alone[ranks] = alone.get(ranks, 0) + 1
    tag = _LOCAL_TAGS_AT + hash64(str(ranks)) % _LOCAL_TAGS_AT

    def swap(row: np.ndarray) -> np.ndarray:
        table = np.empty((len(ranks), row.size), np.int64)
        works = [group.irecv(table[i], r, tag) for i, r in enumerate(ranks)]
        works += [group.isend(row, r, tag) for r in ranks]
        Together(works).wait()
        return table

    name = f"{group.name}/{'+'.join(map(str, ranks))}.{number}"
    return _connect(group, list(ranks), name, ranks, strict, swap)


def _connect(
    group: Any,
    members: list[int] | None,
    name: str,
    sizes: tuple = (),
    strict: bool | None = None,
    swap: Swap | None = None,
) -> Any:
    call, begun = group._calls.get("split", None, sizes=sizes)
    transport = group.transport.split(call, members, name, swap)
    group._calls.box.end(begun)
    if transport is None or members is None:
        return None
    strict = group.strict if strict is None else strict
    transport.between = group.transport.between
    return type(group)(transport, [group.ranks[i] for i in members], strict, group.backend)
