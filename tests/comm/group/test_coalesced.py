"""Several arrays in one collective: what travels together, and what comes back where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.comm.calls.reduce_ops import ReduceOp
from disttrain.comm.group.coalesced import all_gather, all_reduce


class Later:
    """A work whose result is there when the test says so."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def then(self, follow: Callable[[Any], None]) -> Later:
        follow(self.result)
        return self


def doubling(seen: list) -> Callable:
    """As two ranks with the same values would add them."""

    def verb(flat: np.ndarray, op: ReduceOp, async_op: bool) -> Later:
        seen.append((flat.dtype.name, flat.size))
        flat *= 2
        return Later(flat)

    return verb


def test_arrays_of_one_type_travel_together():
    arrays = [np.ones((2, 2)), np.arange(3), np.array(5.0), np.zeros((0, 4))]
    seen: list = []
    works = all_reduce(doubling(seen), arrays, ReduceOp.SUM)
    assert seen == [("float64", 5), ("int64", 3)] and len(works) == 2
    assert [a.tolist() for a in arrays] == [[[2, 2], [2, 2]], [0, 2, 4], 10.0, []]


def test_complex_numbers_are_summed_as_pairs():
    arrays = [np.array([1 + 2j]), np.array([3.0])]
    seen: list = []
    all_reduce(doubling(seen), arrays, ReduceOp.SUM)
    assert seen == [("float64", 3)]
    assert [a.tolist() for a in arrays] == [[2 + 4j], [6.0]]


def test_complex_numbers_are_multiplied_as_they_are():
    seen: list = []
    all_reduce(doubling(seen), [np.array([1j]), np.array([3.0])], ReduceOp.PRODUCT)
    assert seen == [("complex128", 1), ("float64", 1)]


def test_what_is_gathered_lies_by_rank_and_array():
    def verb(parts: list, flat: np.ndarray, async_op: bool) -> Later:
        for rank, part in enumerate(parts):
            part[...] = flat + 10 * rank
        return Later(parts)

    arrays = [np.array([[1, 2]]), np.array(3.0), np.array([4])]
    outs = [[np.empty_like(a) for a in arrays] for _ in range(2)]
    assert len(all_gather(verb, outs, arrays)) == 2
    assert [[a.tolist() for a in row] for row in outs] == [
        [[[1, 2]], 3.0, [4]], [[[11, 12]], 13.0, [14]],
    ]  # fmt: skip
