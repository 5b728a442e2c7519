"""A call as data: which calls are of one kind."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile.guards.arguments import Call, Unknown


def key(*args, **kwargs):
    return Call(args, kwargs).key


def test_tensors_count_by_shape_type_layout_and_what_becomes_of_gradients():
    x = dt.ones(2, 3)
    assert key(x) == key(dt.zeros(2, 3))
    others = [dt.ones(3, 2), x.double(), dt.ones(3, 2).T, x.clone().requires_grad_(), x[None]]
    assert len({key(x), *map(key, others)}) == 6
    leaf = x.clone().requires_grad_()
    before = key(leaf)
    leaf.sum().backward()
    assert key(leaf) != before


def test_numbers_count_by_their_bits_and_types():
    kinds = [1, 1.0, True, "1", 0.0, -0.0, None, 1j]
    assert len({key(x) for x in kinds}) == len(kinds)
    assert key(float("nan")) == key(float("nan"))


def test_structures_are_part_of_it():
    x = dt.ones(2)
    assert key([x, 1]) == key([dt.zeros(2), 1])
    kinds = [
        key([x, 1]),
        key((x, 1)),
        key(x, 1),
        key([x], 1),
        key({"a": x}),
        key({"b": x}),
        key(a=x),
    ]
    assert len(set(kinds)) == len(kinds)
    call = Call(([x, {"y": (x,)}],), {"z": x})
    assert len(call.tensors) == 3 and call.tensors[0] is x


def test_memory_in_common_is_part_of_it():
    x, y = dt.ones(4), dt.ones(4)
    assert key(x, x) != key(x, y) == key(y, x)
    whole = dt.ones(8)
    assert key(whole[:4], whole[2:6]) != key(whole[:4], whole[1:5]) != key(x, y)


def test_small_arrays_count_by_content_and_large_ones_are_refused():
    assert key(np.arange(3)) == key(np.arange(3)) != key(np.arange(1, 4))
    with pytest.raises(Unknown, match="numpy array of 80000 bytes"):
        key(np.zeros(10000))


def test_other_objects_count_by_identity_and_are_kept():
    class Odd:
        pass

    one = Odd()
    call = Call((one,), {})
    assert call.objects == [one] and call.key == key(one) != key(Odd())


def test_the_grad_mode_is_part_of_it():
    with dt.no_grad():
        inside = key(dt.ones(2))
    assert inside != key(dt.ones(2))
