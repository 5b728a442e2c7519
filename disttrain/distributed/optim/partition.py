"""Which rank updates which parameter, and which parameters travel together. Pure."""

from __future__ import annotations

from collections.abc import Sequence

CHUNK_BYTES = 4 << 20  # of each rank in a message; so much more memory is needed


def partition_by_size(groups: Sequence[Sequence[int]], num_ranks: int) -> list[list[list[int]]]:
    """``out[r][k]``: which parameters of group k rank r owns, as places in the group.

    ``groups[k][i]`` is the number of elements of parameter i of group k. Group by group, the
    largest parameter goes to the rank that has least so far (the greedy rule of Graham, 1969), so
    that a group that is added later moves no earlier parameter.
    """
    load = [0] * num_ranks
    out: list[list[list[int]]] = [[[] for _ in groups] for _ in range(num_ranks)]
    for k, sizes in enumerate(groups):
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            rank = load.index(min(load))
            out[rank][k].append(i)
            load[rank] += sizes[i]
    return out


def plan_chunks(sizes: Sequence[Sequence[int]], limit: int) -> list[list[tuple[int, int]]]:
    """``out[c][r]``: from which to which of its parameters rank r sends in message c.

    ``sizes[r][i]``: elements of rank r's i-th parameter. A rank's part of one message has at most
    ``limit`` elements, or one parameter.
    """
    cuts = [_cut(row, limit) for row in sizes]
    count = max(map(len, cuts), default=0)
    return [
        [row[c] if c < len(row) else (len(s), len(s)) for row, s in zip(cuts, sizes, strict=True)]
        for c in range(count)
    ]


def _cut(sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    out, start, total = [], 0, 0
    for i, n in enumerate(sizes):
        if i > start and total + n > limit:
            out.append((start, i))
            start, total = i, 0
        total += n
    if start < len(sizes):
        out.append((start, len(sizes)))
    return out
