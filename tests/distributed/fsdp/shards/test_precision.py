"""What a user chooses: names of axes, policies as values."""

from __future__ import annotations

import dataclasses

import pytest

import disttrain as dt
from disttrain.distributed.fsdp.shards.precision import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    DiskOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("dims", "names"),
    [
        ({"shard": "s"}, ((), ("s",))),
        ({"replicate": "r"}, (("r",), ())),
        ({"shard": ("s", "t"), "replicate": ("r",)}, (("r",), ("s", "t"))),
        ({"shard": ["s", "t"], "replicate": "rep"}, (("rep",), ("s", "t"))),
    ],
)
def test_axes_by_one_name_or_several(dims, names):
    assert DataParallelMeshDims(**dims).names() == names


def test_one_axis_at_least_is_named():
    with pytest.raises(ValueError, match="At least one of shard or replicate must be set"):
        DataParallelMeshDims()


def test_policies_are_values():
    assert MixedPrecisionPolicy(dt.bfloat16) == MixedPrecisionPolicy(param_dtype=dt.bfloat16)
    assert len({MixedPrecisionPolicy(), MixedPrecisionPolicy(cast_forward_inputs=True)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        MixedPrecisionPolicy().param_dtype = dt.float16
    assert isinstance(CPUOffloadPolicy(), OffloadPolicy) and CPUOffloadPolicy().pin_memory
    assert DiskOffloadPolicy().folder == "." and OffloadPolicy() != CPUOffloadPolicy()
