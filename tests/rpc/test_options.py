"""Options of workers: what is kept, what is refused, what the agent is told."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from disttrain.rpc.options import (
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
    settings_of,
    ways_of,
)


def test_seconds_are_a_number():
    assert RpcBackendOptions(rpc_timeout=3).rpc_timeout == 3.0
    for wrong in (True, "3", None):
        with pytest.raises(TypeError, match="incompatible constructor arguments"):
            RpcBackendOptions(rpc_timeout=wrong)


def test_maps_of_devices_add_up():
    options = TensorPipeRpcBackendOptions(device_maps={"w": {"cuda:0": "cuda:1"}})
    options.set_device_map("w", {"cuda:1": "cuda:0"})
    options.set_device_map("w", {"cuda:0": "cuda:1"})  # the same again
    assert len(options.device_maps["w"]) == 2
    with pytest.raises(ConfigError, match="only supports 1-to-1 mapping"):
        options.set_device_map("w", {"cuda:0": "cuda:3"})
    assert len(options.device_maps["w"]) == 2


def test_what_the_agent_is_told():
    options = TensorPipeRpcBackendOptions(
        rpc_timeout=7, num_worker_threads=3, max_depth=5, cloudpickle=True
    )
    told = settings_of(options)
    assert (told.timeout, told.threads, told.max_depth, told.cloudpickle) == (7.0, 3, 5, True)
    assert settings_of(RpcBackendOptions()).cloudpickle is False


def test_ways():
    options = TensorPipeRpcBackendOptions(transports=["local"], tls=False)
    assert ways_of(options) is options.ways
    assert ways_of(RpcBackendOptions()) == TensorPipeRpcBackendOptions().ways
