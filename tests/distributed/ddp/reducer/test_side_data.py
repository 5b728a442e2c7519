"""Rows behind gradients: exact in every type after any sum, on the host and on a device."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.device.memory import HOST, memory_of
from disttrain.distributed.ddp.reducer.side_data import (
    JOINED,
    MISSING,
    ROW,
    WEIGHTED,
    DeviceRows,
    Row,
    Rows,
    extra,
    rows_in,
)

pytestmark = pytest.mark.simulated

TOLD = [
    Row(MISSING | JOINED, 0xFFFFFFFF, 0.25, -1e300),
    Row(0, 0, 0.0, 0.0),
    Row(WEIGHTED, 12345, 1.5, 3.141592653589793),
]


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", ml_dtypes.bfloat16, "c8", "c16"], ids=str)
def test_the_sum_of_all_ranks_memory_is_every_ranks_row(kind):
    size = len(TOLD)
    tails = [np.ones(extra(size, 2, HOST), kind) for _ in range(size)]
    rows = [Rows(tail, rank, size) for rank, tail in enumerate(tails)]
    for mine, row in zip(rows, TOLD, strict=True):
        mine.write(row)
    rows[0].count([])
    rows[1].count([1])
    rows[2].count([0, 1])
    total = sum(tails[1:], tails[0])
    found = rows[1].at(total)
    assert found.read() == TOLD
    assert np.real(found.counted()).astype(int).tolist() == [2, 1]


def test_a_row_has_a_byte_for_each_element():
    assert ROW == 20 and extra(4, 10, HOST) == 4 * 20 + 10
    rows = Rows(np.zeros(40, "f4"), 1, 2)
    rows.write(Row(7))
    assert rows.mine[0] == 7 and not rows.rows[:ROW].any() and rows.used.size == 0
    assert isinstance(rows_in(np.zeros(20, "f4"), 0, 1, HOST), Rows)


def test_on_a_device_ranks_tell_later_that_they_miss_gradients(double):
    tail = dt.full((3 + 2,), 9.0, device="cuda")
    memory = memory_of(tail.array)
    assert extra(3, 2, memory) == 5
    rows = rows_in(memory.raw(tail.array), 1, 3, memory)
    assert isinstance(rows, DeviceRows)
    rows.write(Row(MISSING))
    rows.count([1])
    assert tail.tolist() == [0, 1, 0, 1, 0]
    assert rows.read() == [] and rows.at(rows.all).arrived() == [1]
    assert rows.arrived() == [] and rows.counted().tolist() == [1, 0]
    rows.write(Row(WEIGHTED))
    assert not memory.numbers(rows.mine).any()
