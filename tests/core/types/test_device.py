"""Devices by name: what is one, which is meant, and which is there."""

import copy
import pickle

import pytest

import disttrain as dt
from disttrain.core.types.device import (
    CPU,
    META,
    at,
    chosen,
    device,
    get_default_device,
    located,
    on,
    set_default_device,
    usable,
)
from disttrain.errors import DeviceError


def test_devices_by_name():
    cpu = dt.device("cpu")
    assert str(cpu) == "cpu" and repr(cpu) == "device(type='cpu')" and cpu == "cpu"
    second = dt.device("cuda:1")
    assert (second.type, second.index, str(second)) == ("cuda", 1, "cuda:1")
    assert second == dt.device("cuda", 1) == dt.device(second)
    assert hash(second) == hash(dt.device("cuda:1"))
    assert repr(second) == "device(type='cuda', index=1)" and cpu != 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("cpu:x", "a number"),
        (3.5, "needed a name"),
        ("foo", "Expected one of"),
        ("cuda:01", "a number"),
        (3, "Cannot access accelerator"),
    ],
)
def test_what_is_no_device(given, text):
    with pytest.raises(DeviceError, match=text):
        dt.device(given)


def test_absent_devices_are_named():
    with pytest.raises(DeviceError, match="not available here"):
        dt.ones(1, device="xpu")


def test_default_devices():
    assert get_default_device() == "cpu"
    with dt.device("meta") as inside:
        assert inside == "meta" and dt.ones(2).is_meta
        with dt.device("cpu"):
            assert dt.ones(2).is_cpu
        assert get_default_device() == "meta"
    assert get_default_device() == "cpu"
    set_default_device("meta")
    assert dt.zeros(1).device.type == "meta" and not dt.zeros(1).is_cuda
    set_default_device(None)
    assert dt.zeros(1).device == "cpu"


def test_a_number_beside_a_name():
    for wrong, kind, text in (
        (("cuda:1", 1), DeviceError, "must not include an index"),
        (("cuda", -1), DeviceError, "must not be negative"),
        (("cuda", True), TypeError, "must be int, not bool"),
        (("cuda", "1"), TypeError, "must be int, not str"),
    ):
        with pytest.raises(kind, match=text):
            device(*wrong)
    assert device(device("cuda", 2), 5).index == 5 and device(device("cuda", 2)).index == 2
    assert device("cuda:10").index == 10 and device("cuda:0") != device("cuda")


def test_a_device_survives_its_way_through_a_pickle():
    for one in (CPU, device("cuda:3"), device("cuda")):
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
        assert device(str(one)) == one


def test_a_device_of_one_name_is_one_object():
    assert at("cpu", None) is CPU is usable("cpu") is usable("cpu:0") is usable(CPU)
    assert at("meta", None) is META is usable(device("meta"))
    assert at("cuda", 1) is at("cuda", 1)


def test_without_a_number_it_is_the_current_one(double):
    assert usable("cuda") is at("cuda", 0)
    double.use(1)
    try:
        assert usable("cuda") is usable(device("cuda")) is at("cuda", 1)
        assert usable("cuda:0") is at("cuda", 0)
        assert device(1) == "cuda:1" and usable(1) is at("cuda", 1)
    finally:
        double.use(0)
    with pytest.raises(DeviceError, match=r"'cuda:2': there are 2 cuda devices .numbers: 0 to 1."):
        usable("cuda:2")


def test_where_arrays_are_made(double):
    assert located(CPU) is located(META) is None
    there = located(usable("cuda:1"))
    assert there.platform is double and there.index == 1
    with on(device("cuda:1")):
        assert double.current() == 1
    with on(CPU):
        assert double.current() == 0


def test_a_default_that_is_not_there_is_no_default():
    with pytest.raises(DeviceError, match="not available here"):
        set_default_device("xpu")
    with pytest.raises(DeviceError, match="not available here"):
        with device("xpu"):
            pass
    assert get_default_device() is CPU and chosen(None) is None and chosen("cpu") == "cpu"
    with device("meta"):
        assert chosen(None) == "meta" and usable(None) is META


def test_a_default_goes_back_after_an_error():
    with pytest.raises(KeyError):
        with device("meta"):
            raise KeyError
    assert get_default_device() is CPU
