"""Every byte of a message travels once, in order, on one of its links."""

from __future__ import annotations

import random

import pytest

from disttrain.rpc.messages.hosts.stripes import LEAST, LINKS, how_many, stripes


@pytest.mark.parametrize("links", [1, 2, 3, 8])
def test_all_bytes_are_there_once_and_in_order(links):
    choose = random.Random(links)
    for _ in range(200):
        sizes = [
            choose.choice((0, 1, 70_000, 262_144, 5_000_000)) for _ in range(choose.randrange(6))
        ]
        found = stripes(sizes, links)
        assert len(found) == links
        assert [piece for stripe in found for piece in stripe] == sorted(
            piece for stripe in found for piece in stripe
        )
        for part, size in enumerate(sizes):
            at = 0
            for _, start, end in (piece for s in found for piece in s if piece[0] == part):
                assert start == at < end
                at = end
            assert at == size


def test_stripes_are_about_as_long():
    lengths = [sum(end - start for _, start, end in s) for s in stripes([1 << 24, 1 << 26], 4)]
    assert max(lengths) - min(lengths) < 1 << 20


def test_short_messages_have_one():
    assert [how_many(n) for n in (1, LEAST, 2 * LEAST - 1, 2 * LEAST)] == [1, 1, 1, 2]
    assert how_many(1 << 40) == LINKS
