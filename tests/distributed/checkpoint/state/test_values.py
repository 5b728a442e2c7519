"""Values of state dicts: containers keep their classes, tensors lie as others do."""

from __future__ import annotations

import collections
import types

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.checkpoint.state import values
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        {"a": dt.ones(1), 2: [dt.ones(1), (dt.ones(1), "x")]},
        collections.OrderedDict(b=dt.ones(1), a=dt.ones(1)),
        collections.defaultdict(list, {"a": dt.ones(1)}),
        collections.Counter({"a": 2}),
        types.MappingProxyType({"a": dt.ones(1)}),
        Pair(dt.ones(1), [dt.ones(1)]),
        dt.ones(1),
        3,
    ],
    ids=lambda v: type(v).__name__,
)
def test_every_tensor_is_found_and_containers_keep_their_classes(value):
    before = str(value)
    found = values.map_values(lambda t: t * 2, value)
    assert type(found) is type(value) and str(value) == before
    assert str(found) == before.replace("[1.]", "[2.]").replace("1.", "2.")


def test_what_a_state_dict_has_beside_its_values_stays():
    state = nn.BatchNorm1d(2).state_dict()
    assert values.gathered(state)._metadata == state._metadata
    made = values.map_values(lambda t: t, collections.defaultdict(int, {"a": 1}))
    assert made["new"] == 0


def test_sharded_tensors_are_gathered_wherever_they_are():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        t = distribute_tensor(dt.arange(3.0), mesh, [Shard(0)])
        found = values.gathered({"a": [t, (t, 1)], "b": dt.ones(1)})
        again = values._gather_state_dict({"a": t}, cpu_offload=True)
        assert type(again["a"]) is dt.Tensor
        return found["a"][0].tolist(), found["a"][1][0].tolist(), found["b"].tolist()

    assert on_ranks(body) == [([0, 1, 2], [0, 1, 2], [1])] * 2


def test_a_value_is_laid_out_as_its_target():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        full = dt.arange(4.0)
        target = distribute_tensor(dt.zeros(4), mesh, [Shard(0)])
        whole = distribute_tensor(full, mesh, [Replicate()])
        other = distribute_tensor(full, init_device_mesh("cpu", (1, 2)), [Replicate(), Shard(0)])
        same = distribute_tensor(full, mesh, [Shard(0)])
        assert values.like(same, target) is same
        for value in (full, whole, other):
            found = values.like(value, target)
            assert isinstance(found, DTensor) and found.placements == (Shard(0),)
            assert found.device_mesh == mesh and found.full_tensor().tolist() == full.tolist()
        plain = values.like(same, dt.zeros(4))
        return type(plain) is dt.Tensor, plain.tolist()

    assert on_ranks(body) == [(True, [0, 1, 2, 3])] * 2


def test_the_first_ranks_value_is_everyones():
    def body():
        group = dist.group.WORLD
        value = dt.arange(3, dtype=dt.int64) if dist.get_rank() == 0 else None
        found = values.from_rank0(value, ((3,), np.dtype(np.int64)), group)
        return found.tolist(), found.dtype

    assert on_ranks(body, 3) == [([0, 1, 2], dt.int64)] * 3
