"""What is said when a model is wrapped."""

from __future__ import annotations

from disttrain.distributed.fsdp import settings


def test_settings_have_pytorchs_defaults() -> None:
    assert settings.MixedPrecision().cast_root_forward_inputs
    assert settings.FullOptimStateDictConfig() == settings.FullOptimStateDictConfig(True, False)
    assert not settings.LocalOptimStateDictConfig().offload_to_cpu
    assert [s.name for s in settings.ShardingStrategy][:2] == ["FULL_SHARD", "SHARD_GRAD_OP"]
