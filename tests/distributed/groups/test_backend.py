"""Names of backends, and how much is checked."""

import pytest

from disttrain import distributed as dist
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_backends_and_debug_levels(monkeypatch):
    config = dist.BackendConfig(dist.Backend("CPU:GLOO,cuda:nccl"))
    assert str(config) == "cpu:gloo,cuda:nccl"
    assert config.get_device_backend_map()["cuda"] == dist.Backend.NCCL
    assert dist.is_backend_available("cpu:gloo") and not dist.is_backend_available("cuda:nccl")
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")

    def body():
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL
        dist.set_debug_level(dist.DebugLevel.INFO)
        assert dist.get_debug_level() is dist.DebugLevel.INFO
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL

    on_ranks(body, 1)
