"""The same objects in two lists, by their memory and one by one."""

from __future__ import annotations

import random

import pytest

from disttrain.compile.guards import identity


@pytest.mark.parametrize("alike", [identity.alike, identity.one_by_one])
@pytest.mark.parametrize("n", [0, 1, 5, 63, 64, 65, 1000])
def test_lists_of_the_same_objects(alike, n):
    items = [object() for _ in range(n)]
    assert alike(items, list(items))
    assert not alike(items, [*items, None])
    assert not alike([*items, None], items)
    for _ in range(min(n, 5)):
        other = list(items)
        other[random.randrange(n)] = object()
        assert not alike(items, other)
    if n > 1:
        assert not alike(items, [items[1], items[0], *items[2:]])


@pytest.mark.parametrize("alike", [identity.alike, identity.one_by_one])
def test_equal_objects_are_not_the_same(alike):
    class Any:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    one, two = [float("1.5") for _ in range(100)], [float("1.5") for _ in range(100)]
    assert one == two
    assert not alike(one, two)
    assert not alike([Any()] * 100, one)


def test_a_list_that_grew_and_moved_is_compared_where_it_is():
    items = list(range(1000, 1100))
    other = list(items)
    for i in range(5000):
        items.append(i)
        other.append(items[-1])
    assert identity.alike(items, other)
    del items[2000:], other[2000:]
    assert identity.alike(items, other)
