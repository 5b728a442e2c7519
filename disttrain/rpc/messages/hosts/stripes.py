"""Which bytes of a message travel on which link. Pure; both ends come to the same.

One link is bound to one processor's work at each end, and to what a network gives to one
connection; so large messages are cut into a stripe for each of several.
"""

from __future__ import annotations

LINKS = 2  # a peer has so many for each kind of message
LEAST = 4 << 20  # bytes of a stripe: shorter ones are not worth a thread
_CUT = 256 << 10  # stripes end at multiples of this

Piece = tuple[int, int, int]  # part, from, to: bytes of it


def how_many(total: int, links: int = LINKS) -> int:
    """How many links carry ``total`` bytes."""
    return max(1, min(links, total // LEAST))


def stripes(sizes: list[int], links: int) -> list[list[Piece]]:
    """The pieces of parts of ``sizes`` bytes that each of ``links`` links carries, in order."""
    total = sum(sizes)
    step = -(-total // links // _CUT) * _CUT
    ends = [min(total, step * (n + 1)) for n in range(links - 1)] + [total]
    found: list[list[Piece]] = [[] for _ in range(links)]
    link = at = 0
    for part, size in enumerate(sizes):
        start = 0
        while start < size:
            while at == ends[link]:
                link += 1
            taken = min(size - start, ends[link] - at)
            found[link].append((part, start, start + taken))
            start += taken
            at += taken
    return found
