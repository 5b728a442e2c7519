"""Where a unit's parameters lie, and over how many ranks gradients are averaged."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from disttrain.distributed.fsdp.shards.members import Choices, Member, Sharding
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Replicate, Shard
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_parameters_are_told_from_each_other_by_what_they_are():
    one, two = Member("w", []), Member("w", [])
    assert one != two and len({one, two}) == 2
    one.fqn = "layer.w"
    assert one._param_fqn == "layer.w" and two._param_fqn == ""


def test_shards_lie_along_the_last_axis_and_replicas_along_the_others():
    def body():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("r", "s"))
        groups = [mesh.get_group(n) for n in ("s", "r")]
        hybrid = Sharding(groups[0], groups[1], mesh)
        plain = Sharding(groups[0], None, mesh["s"])
        assert hybrid.placements(1) == (Replicate(), Shard(1)) and plain.placements(0) == (
            Shard(0),
        )
        assert (hybrid.world, hybrid.total, plain.world, plain.total) == (2, 4, 2, 2)
        return hybrid.rank, dist.get_rank()

    assert on_ranks(body, 4) == [(0, 0), (1, 1), (0, 2), (1, 3)]


def test_choices_of_one_unit_are_not_anothers():
    one, two = Choices(), Choices()
    one.forward_prefetch.append(3)
    assert two.forward_prefetch == [] and two.backward_prefetch is None
    assert one.sync and one.all_reduce and one.last_backward and one.divide_factor is None
