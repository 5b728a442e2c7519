"""Files that name classes by an earlier home are read as those that name the present one."""

import importlib.util

import pytest

from disttrain import nn
from disttrain.serialize import homes, objects

LAYERS = [nn.Linear, nn.LSTM, nn.Sequential, nn.GELU, nn.BatchNorm1d, nn.TransformerEncoderLayer]


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


def test_present_homes_are_there():
    for now in homes._NOW.values():
        assert importlib.util.find_spec(now) is not None, now
