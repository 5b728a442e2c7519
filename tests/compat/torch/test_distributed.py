"""``torch.distributed`` of the stand-in has what programs name there, also what loads late."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from disttrain.compat import torch as stand_in


@pytest.mark.parametrize(
    "name",
    ["DeviceMesh", "GradBucket", "init_device_mesh", "P2POp", "ProcessGroup", "PrefixStore",
     "ReduceOp", "all_reduce", "init_process_group", "new_group", "new_subgroups", "rendezvous"],
)  # fmt: skip
def test_names_are_the_project_s_own(name: str) -> None:
    assert getattr(stand_in._distributed()["torch.distributed"], name) is getattr(dist, name)
