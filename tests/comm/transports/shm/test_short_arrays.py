"""Arrays that every rank reduces whole: what is kept for a call, and calls that are torn off."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from disttrain.comm.calls import reduce_ops
from disttrain.errors import CommError, WaitTimeout
from support.groups import run_group

NUM_ELEMENTS = 4000  # of float64: longer than the small payload


class Interrupting:
    """Where a rank looks for its peers, somebody interrupts it."""

    def __iter__(self):
        raise KeyboardInterrupt


def test_a_call_that_is_interrupted_while_it_looks_for_its_peers_ends_the_group():
    """The next call must not take the interrupted one's place among the peers' calls."""

    def body(group):
        aside = group.new_group([0, 1])
        x = np.full(NUM_ELEMENTS, 1.0)
        group.all_reduce(x)
        if group.rank == 0:
            group.transport._spins = Interrupting()
            with pytest.raises(KeyboardInterrupt):
                group.all_reduce(x)
            aside.barrier()
            with pytest.raises(CommError, match=r"ended in the middle \(KeyboardInterrupt\)"):
                group.all_reduce(x)
        else:
            aside.barrier()
            group.all_reduce(x)  # all data was there
            assert x[0] == x[-1] == 4.0
            group.timeout = 0.05
            with pytest.raises(WaitTimeout):
                group.all_reduce(x)

    run_group(2, body)


def test_ever_new_factors_leave_no_memory_behind():
    def body(group):
        x = np.ones(NUM_ELEMENTS, np.float32)
        gc.disable()
        before = _reducers()  # of other tests
        for i in range(200):
            group.all_reduce(x, reduce_ops.premul_sum(0.5 + i / 1024))
            if i == 0:
                assert x[0] == 1.0
        return _reducers() - before

    assert max(run_group(2, body)) <= 64


def _reducers() -> int:
    """How many there are in this process."""
    return sum(isinstance(each, reduce_ops._Wide) for each in gc.get_objects())
