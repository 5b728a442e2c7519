"""The rounds in which a large array goes through rings of chunks: members take turns."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from disttrain.comm.reduce_ops import ReduceOp, make_reducer
from disttrain.comm.shm.rings import NUM_SLOTS, Rings, cut, reduce_in_rounds


def run(arrays, step, seed):
    """All members' rounds, in a random order that their waits allow."""
    size, rng = len(arrays), random.Random(seed)
    memory = [np.full(NUM_SLOTS * step, np.nan, np.float32) for _ in arrays]
    reduce = make_reducer(ReduceOp.SUM, np.dtype(np.float32), size)
    ended, awaited = [0] * size, [0] * size
    members = {
        i: reduce_in_rounds(
            Rings(memory, i), arrays[i], reduce, lambda n, i=i: ended.__setitem__(i, n)
        )
        for i in range(size)
    }
    while members:
        ready = [i for i in members if min(ended) >= awaited[i]]
        i = rng.choice(ready if rng.random() < 0.5 else ready[-1:])  # some run far ahead
        try:
            awaited[i] = next(members[i])
        except StopIteration:
            del members[i]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_member_gets_the_tree_of_all(size):
    for seed, count in enumerate((1, 63, 640, 641, 1300, 2561, 6400, 6401)):
        rng = np.random.default_rng(seed)
        arrays = [rng.standard_normal(count, np.float32) for _ in range(size)]
        want = np.empty(count, np.float32)
        make_reducer(ReduceOp.SUM, want.dtype, size)([a.copy() for a in arrays], want)
        run(arrays, 640, seed)
        for array in arrays:
            assert array.tobytes() == want.tobytes(), (count, seed)


def test_slices_cover_a_chunk():
    for count in (0, 1, 64, 65, 1000):
        for size in (1, 2, 3, 16):
            ends = [cut(count, size, i) for i in range(size)]
            assert ends[0][0] == 0 and ends[-1][1] == count
            assert all(a[1] == b[0] for a, b in pairwise(ends))
