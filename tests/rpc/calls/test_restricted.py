"""What a worker that limits what others may name does not do for them."""

import importlib
import os
import pathlib
import pickle
from functools import partial

import numpy as np
import pytest

import disttrain as dt
from disttrain import rpc
from disttrain.errors import UnknownName
from disttrain.rpc.calls import allowed
from disttrain.rpc.calls.allowed import check_method
from disttrain.rpc.calls.packing import Packer
from disttrain.rpc.proxies import _local_invoke
from support.workers import simulate_workers

pytestmark = pytest.mark.simulated


class Box:
    """What a program may leave to others."""

    mark = 1

    def __init__(self, value=0):
        self.value = value

    def __getitem__(self, place):
        return self.value

    def get(self):
        return self.value

    @staticmethod
    def made():
        return Box(2)


def same(value):
    return value


class Reduced:
    """Is pickled as it is told."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def limited(value, *allowed):
    payload, tensors = Packer().pack(value)
    return Packer(allowed=[__name__, *allowed]).unpack(payload, tensors)


@pytest.mark.parametrize("changed", [same, Box, dt.Tensor, pathlib.PosixPath])
def test_what_has_a_name_is_not_changed(changed):
    payload = pickle.dumps(changed)[:-1] + b"N}\x8c\x04markK\x05s\x86b."
    with pytest.raises(UnknownName, match="may not be changed"):
        Packer(allowed=[__name__]).unpack(payload, [])
    assert getattr(changed, "mark", 1) == 1


@pytest.mark.parametrize(
    "made",
    [
        (type, ("Forged", (pathlib.PosixPath,), {"__module__": __name__})),
        (np.ndarray, ((1,), "O", b"12345678")),
    ],
)
def test_what_makes_anything_is_not_called(made):
    with pytest.raises((UnknownName, TypeError)):
        limited(Reduced(*made))


def test_arrays_and_values_with_state_arrive():
    for array in (np.arange(6.0).reshape(2, 3).T, np.array(["a", None], object), np.ones(())):
        came = limited(array)
        assert came.dtype == array.dtype and np.array_equal(came, array)
    assert limited([Box([1]), type(None)])[0].get() == [1]


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x80\x05\x95" + bytes(8), b"\x80\x05\x87."])
def test_what_is_no_pickle_is_told(payload):
    with pytest.raises(pickle.UnpicklingError):
        Packer(allowed=[]).unpack(payload, [])


@pytest.mark.parametrize(
    "value, name",
    [(Box(), "get"), (Box(), "__getitem__"), (Box, "made"), (Box, "__call__"), ([1], "append"),
     ({}, "items"), (dt.ones(2), "add_"), (Box(), "value")],
)  # fmt: skip
def test_methods_of_values_that_may_be_named(value, name):
    check_method(value, name, [__name__])


@pytest.mark.parametrize(
    "value, name",
    [(Box(), "__getattribute__"), (Box(), "__class__"),
     (Box(), "__reduce_ex__"), (Box, "__subclasses__"), (Box, "mro"), (os, "system"),
     (same, "__call__"), (partial(same), "__call__"), (Box().get, "__call__"),
     (np.ones(1), "tofile"), (pathlib.Path("/"), "touch"), (dt.ones(1), "__reduce_ex__")],
)  # fmt: skip
def test_methods_that_lead_elsewhere(value, name):
    with pytest.raises(UnknownName, match="may not be"):
        check_method(value, name, [__name__])
    check_method(value, name, None)


def test_no_way_leads_from_a_value_to_the_modules():
    def body(rank):
        if rank:
            return
        box = rpc.remote(1, Box, (5,))
        assert box.rpc_sync().get() == 5
        there = rpc.remote(1, _local_invoke, (box, "__getattribute__", ("get",), {}))
        with pytest.raises(UnknownName, match="leads to what callable_modules does not allow"):
            there.to_here()

    simulate_workers(2, body, callable_modules=[__name__])


def test_what_is_allowed_by_name_is_there():
    """A list that a move has left behind would refuse what its new place is called."""
    for module, names in {**allowed.PLAIN, **allowed._OWN}.items():
        found = importlib.import_module(module)
        assert [name for name in names if not hasattr(found, name)] == [], module
