"""Values of devices that must be equal on all ranks, and calls of devices that carry them."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.equality.leaves import combined, leaves
from disttrain.errors import ValuesDiffer
from support.device_ranks import on_devices

pytestmark = pytest.mark.simulated


def cuda(*values):
    return dt.tensor(values, device="cuda", dtype=dt.float32)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("waits", [False, True])
def test_calls_of_devices_carry_values(double, backend, waits):
    def body():
        rank, x = dist.get_rank(), cuda(1, 2)
        dist.same(cuda(3, 4), name="equal")
        dist.all_reduce(x)
        dist.same(cuda(3, 4 + rank), name="mine")
        with pytest.raises(ValuesDiffer) as raised:
            work = dist.all_reduce(x, async_op=waits)
            if waits:
                work.wait()
            dist.barrier()  # at the latest: what only enqueues tells of it later
        return str(raised.value), x.tolist()

    (text, x), other = on_devices(double, body, backend=backend)
    assert other == (text, x) and x == [2.0, 4.0]
    assert "rank 0 has float32[2] [3.0, 4.0]" in text
    assert "rank 1 has float32[2] [3.0, 5.0]" in text


def test_where_a_tensor_lies_does_not_count(double):
    def body():
        return [
            combined(leaves(t)) for t in (cuda(1, 2), dt.tensor([1.0, 2.0]), np.float32([1, 2]))
        ]

    for found in on_devices(double, body):
        assert len(set(found)) == 1
