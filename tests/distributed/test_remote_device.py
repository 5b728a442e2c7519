"""Devices of workers: what their texts mean, and those that mean nothing."""

from __future__ import annotations

import pytest

from disttrain.core.types.device import device
from disttrain.distributed.remote_device import _remote_device
from disttrain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "worker", "rank", "place"),
    [
        ("trainer/cpu", "trainer", None, "cpu"), ("trainer", "trainer", None, "cpu"),
        ("rank:3/cpu", None, 3, "cpu"), ("rank:x/cpu", "rank:x", None, "cpu"),
        ("cpu", None, None, "cpu"), ("cuda:1", None, None, "cuda:1"),
        ("worker:1/cuda:0", "worker:1", None, "cuda:0"),
    ],
)  # fmt: skip
def test_texts(text, worker, rank, place):
    found = _remote_device(text)
    assert (found.worker_name(), found.rank()) == (worker, rank)
    assert found.device() == device(place)
    assert _remote_device(repr(found)) == found
    assert hash(_remote_device(repr(found))) == hash(found)


def test_a_device_is_one_here():
    assert _remote_device(device("cpu")) == _remote_device("cpu") != _remote_device("w/cpu")


@pytest.mark.parametrize("text", ["a/b/c", "/cpu", "a:b:c/cpu"])
def test_texts_that_mean_nothing(text):
    with pytest.raises(ConfigError, match="Could not parse remote_device"):
        _remote_device(text)


def test_what_is_no_text():
    with pytest.raises(TypeError, match="Invalid type for remote_device"):
        _remote_device(3)
