"""Which device an argument names, and what is started by asking."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.backends.device import platform as devices
from disttrain.cuda import which
from disttrain.errors import DeviceError


def test_numbers_names_and_devices(double):
    for where in (1, "cuda:1", dt.device("cuda:1")):
        assert which.index_of(where) == 1
    for where in (None, "cuda", dt.device("cuda")):
        assert which.index_of(where) == 0
        with dt.cuda.device(1):
            assert which.index_of(where) == 1
        with pytest.raises(ValueError, match="with a specified index or an integer"):
            which.index_of(where, optional=False)
    assert which.index_of(0, optional=False) == 0


@pytest.mark.parametrize("where", ["cpu", dt.device("meta"), 1.0, True, [0]])
def test_what_names_no_cuda_device(double, where):
    with pytest.raises(ValueError, match="Expected a cuda device, but got: "):
        which.index_of(where)


@pytest.mark.parametrize("where", [2, -1, "cuda:7"])
def test_numbers_that_no_device_has(double, where):
    with pytest.raises(DeviceError, match="there are 2 CUDA devices, whose numbers begin at 0"):
        which.index_of(where)


def test_asking_starts_nothing():
    before = devices.offer("cuda", lambda: pytest.fail("started"), lambda: (3, ""))
    try:
        assert which.device_count() == 3 and which.is_available()
        assert not which.is_initialized() and which.started() is None
    finally:
        devices.offer("cuda", *before)


def test_a_device_that_was_used_is_started(double):
    assert which.device_count() == 2 and which.is_available()
    which.init()
    assert which.is_initialized() and which.started() is which.here() is double
