"""Files that name classes by an earlier home are read as those that name the present one."""

import importlib.util

import pytest

import disttrain as dt
from disttrain import autograd, distributed, nn, rpc
from disttrain.distributed import fsdp
from disttrain.errors import SerializationError
from disttrain.serialize import homes, objects

LAYERS = [nn.Linear, nn.LSTM, nn.Sequential, nn.GELU, nn.BatchNorm1d, nn.TransformerEncoderLayer]

EARLIER = {
    "disttrain.comm.sim.cluster:simulate": distributed.simulate,
    "disttrain.comm.work:Work": distributed.Work,
    "disttrain.core.checkpoint:checkpoint": autograd.checkpoint,
    "disttrain.core.device:device": dt.device,
    "disttrain.core.dtypes:dtype": dt.dtype,
    "disttrain.core.function:Function": autograd.Function,
    "disttrain.distributed.backend:Backend": distributed.Backend,
    "disttrain.distributed.collectives:all_reduce": distributed.all_reduce,
    "disttrain.distributed.fsdp.precision:MixedPrecisionPolicy": fsdp.MixedPrecisionPolicy,
    "disttrain.distributed.rpc.rref:RRef": rpc.RRef,
    "disttrain.distributed.state:GroupMember": distributed.GroupMember,
    "disttrain.ops.functions.create:tensor": dt.tensor,
    "disttrain.ops.functions.views:clone": dt.clone,
}


def earlier(cls):
    return objects.name_of(cls).replace("disttrain.nn.modules.", "disttrain.nn.")


@pytest.mark.parametrize("cls", LAYERS)
def test_a_layer_is_found_by_its_earlier_name(cls):
    assert objects.Known([], trust=True).find(earlier(cls)) is cls
    assert objects.Known([cls], trust=False).find(earlier(cls)) is cls


def test_an_earlier_name_allows_nothing_more():
    with pytest.raises(objects.ClassRefused):
        objects.Known([nn.LSTM], trust=False).find(earlier(nn.Linear))


def test_other_names_stay():
    assert homes.present("user.nn.linear:Linear") == "user.nn.linear:Linear"


@pytest.mark.parametrize("name", EARLIER)
def test_what_has_a_public_name_is_found_by_an_earlier_one(name):
    thing = objects.Known([], trust=True).find(name)
    assert thing is EARLIER[name] and objects.Known([thing], trust=False).find(name) is thing


def test_a_name_that_tells_of_a_tensor_gives_nothing_else(monkeypatch):
    monkeypatch.setattr(nn.module, "Parameter", dict)
    assert objects.Known([], trust=False).find("disttrain.nn.module:Parameter") is nn.Parameter


def test_what_is_no_more_is_told():
    with pytest.raises(SerializationError, match=r"disttrain\.core\.gone\.Thing, which cannot be"):
        objects.Known([], trust=True).find("disttrain.core.gone:Thing")


def test_present_homes_are_there():
    for now in homes._NOW.values():
        assert importlib.util.find_spec(now) is not None, now
