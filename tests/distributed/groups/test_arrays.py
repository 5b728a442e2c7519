"""What callers give to collectives, as arrays, and what they get back."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import disttrain as dt
from disttrain.comm.calls.work import Done
from disttrain.distributed.groups.arrays import array_of, arrays_of, handed, promised, seconds_of
from disttrain.errors import ConfigError, DeviceError


def test_the_array_is_the_tensors_own_memory():
    t = dt.zeros(3)
    array_of("all_reduce", t)[:] = 2
    assert t.tolist() == [2, 2, 2]


def test_a_write_is_counted_in_the_version_and_a_read_is_not():
    t = dt.zeros(3)
    array_of("broadcast", t, written=False)
    before = t._version
    array_of("all_reduce", t)
    assert t._version == before + 1


def test_what_is_no_tensor_is_refused_with_its_type():
    with pytest.raises(TypeError, match="all_reduce: a Tensor is needed, ndarray given"):
        array_of("all_reduce", np.zeros(3))


def test_a_meta_tensor_has_nothing_to_send():
    with pytest.raises(DeviceError, match="gather: a tensor on the meta device"):
        array_of("gather", dt.zeros(3, device="meta"))


@pytest.mark.parametrize("given", [dt.zeros(2), iter([]), None])
def test_a_list_of_tensors_is_a_list_or_a_tuple(given):
    with pytest.raises(TypeError, match="all_gather: a list of tensors, one per rank"):
        arrays_of("all_gather", given, True)
    found = arrays_of("all_gather", (dt.zeros(2), dt.ones(1)), True)
    assert [a.tolist() for a in found] == [[0, 0], [1]]


def test_a_work_is_handed_out_only_to_who_asked():
    out = dt.zeros(1)
    assert handed(Done(), False, out) is None and promised(Done(), False, out) is None
    work = handed(None, True, out)
    assert work.is_completed() and work.outputs == [out]
    assert promised(None, True, out).wait()[0] is out


def test_times_are_positive_seconds():
    assert seconds_of("barrier", None) is None
    assert seconds_of("barrier", timedelta(milliseconds=1500)) == 1.5
    assert seconds_of("barrier", 2) == 2.0
    for bad in (0, -1.0, timedelta(0)):
        with pytest.raises(ConfigError, match=r"barrier: timeout=.*positive"):
            seconds_of("barrier", bad)
