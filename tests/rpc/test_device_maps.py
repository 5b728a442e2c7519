"""Devices of one worker that stand for those of another."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from disttrain.rpc import device_maps as dm


def test_numbers_are_cudas():
    assert str(dm.to_device(1)) == "cuda:1" and str(dm.to_device("cpu")) == "cpu"
    with pytest.raises((ConfigError, RuntimeError, ValueError), match="negative"):
        dm.to_device(-1)
    assert dm.as_text({"b": dm.to_device_map({0: 1})}) == {"b": [["cuda:0", "cuda:1"]]}


def test_maps_are_one_to_one():
    with pytest.raises(ConfigError, match="1-to-1"):
        dm.to_device_map({0: 1, 1: 1})
    with pytest.raises(ConfigError, match="list of CUDA devices"):
        dm.to_devices(["cpu"])


def test_all_workers_are_checked_together():
    dm.check_maps({"a": {"b": [["cpu", "cpu"]]}, "b": {}}, {})
    with pytest.raises(ConfigError, match="invalid target node names"):
        dm.check_maps({"a": {"c": []}, "b": {}}, {})
    with pytest.raises(ConfigError, match="target devices with invalid indices"):
        dm.check_maps({"a": {"b": [["cpu", "cuda:0"]]}, "b": {}}, {})
    with pytest.raises(ConfigError, match="duplicated devices"):
        dm.check_maps({}, {"a": ["cuda:0", "cuda:0"]})
