"""The rounds in which a large array goes through rings of chunks: members take turns."""

from __future__ import annotations

import functools
import platform
import random
from itertools import pairwise

import numpy as np
import pytest

from disttrain.backends.llvm import reduction
from disttrain.comm.calls.reduce_ops import ReduceOp, make_reducer, tree
from disttrain.comm.transports.shm.chunks import NativeRounds, Rings, cut, reduce_in_rounds
from disttrain.comm.transports.shm.process_memory import address_of

NUM_SLOTS = reduction.NUM_SLOTS


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_machine_code_and_numpy_take_the_same_rounds(size, dtype):
    """Any member may do either, in any order that their waits allow; late ones are waited for, and
    whoever says that it sleeps is woken."""
    dtype, step = np.dtype(dtype), 640
    code = reduction.reduction(dtype.name, size, tree(size, None))
    assert code is not None or reduction_is_impossible()
    for seed, count in enumerate((1, 63, 641, 1300, 6401)):
        rng, pick = np.random.default_rng(seed), random.Random(seed)
        arrays = [rng.standard_normal(count + 1).astype(dtype)[1:] for _ in range(size)]
        op = ReduceOp.AVG if size in (2, 4) else ReduceOp.SUM
        reduce = make_reducer(op, dtype, size)
        want = np.empty(count, dtype)
        reduce([a.copy() for a in arrays], want)
        memory = [np.full(NUM_SLOTS * step, np.nan, dtype) for _ in arrays]
        flags, sleepers, woken = np.zeros(size, np.uint64), np.ones(2, np.uint64), []
        ends = [address_of(flags) + 8 * i for i in range(size)]
        heard = (address_of(sleepers), address_of(sleepers) + 8)

        def publish(i, n, flags=flags):
            flags[i] = n

        members = {}
        for i, array in enumerate(arrays):
            if code is None or pick.random() < 0.3:
                turn = functools.partial(publish, i)
                members[i] = reduce_in_rounds(Rings(memory, i), array, reduce, turn)
            else:
                rounds = NativeRounds(code, memory, i, ends, heard if i else (0, 0), 0, i)
                members[i] = rounds(array, 0, reduce.scale, woken.append)
        awaited = dict.fromkeys(members, 0)
        while members:
            ready = [i for i in members if min(flags) >= awaited[i]]
            i = pick.choice(ready if pick.random() < 0.5 else ready[-1:])
            try:
                awaited[i] = next(members[i])
            except StopIteration:
                del members[i]
        for array in arrays:
            assert array.tobytes() == want.tobytes(), (count, seed)


def reduction_is_impossible():
    return (platform.system(), platform.machine()) != ("Linux", "x86_64")
