"""Plain Tensors beside DTensors: the program's are asked about, the library's own are not."""

import pytest

import disttrain as dt
from disttrain.core.tensor import Tensor
from disttrain.distributed.tensor import DTensor, Replicate, Shard, implicit_replication
from disttrain.errors import PlacementError
from support.meshes import numbers, run_on, spread

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t + dt.ones(4, 6),
        lambda t: dt.stack([t, dt.ones(4, 6)]),
        lambda t: dt.where(t > 0, t, dt.ones(4, 6)),
        lambda t: dt.nn.functional.linear(t.float(), dt.ones(3, 6)),
        lambda t: dt.nn.Linear(6, 2)(t.float()),
    ],
)
def test_the_program_says_what_its_own_are(call):
    def rank(mesh):
        t = spread(numbers(4, 6), mesh, [Shard(0)])
        with pytest.raises(PlacementError, match="mixed Tensor and DTensor"):
            call(t)

    run_on((2,), rank)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t * dt.tensor(2.0),
        lambda t: t + dt.ones(1).expand(4, 6),
        lambda t: t[:, 1:3] + 1,
        lambda t: dt.tril(t),
        lambda t: dt.nn.functional.layer_norm(t, (6,)),
        lambda t: t.masked_fill(t > 0, 1.0),
    ],
)
def test_what_is_the_same_on_every_rank(call):
    wanted = call(numbers(4, 6))

    def rank(mesh):
        found = call(spread(numbers(4, 6), mesh, [Shard(0)]))
        assert isinstance(found, DTensor)
        return dt.allclose(found.full_tensor(), wanted)

    assert run_on((2,), rank) == [True, True]


def test_who_has_said_that_they_are_replicated():
    def rank(mesh):
        t = spread(dt.ones(4, 6), mesh, [Shard(0)])
        with implicit_replication():
            total = t + dt.ones(4, 6)
        return total.full_tensor().sum().item()

    assert run_on((2,), rank) == [48.0] * 2


def test_a_dtensor_is_a_tensor():
    def rank(mesh):
        t = spread(dt.ones(4), mesh, [Replicate()])
        return isinstance(t, Tensor), isinstance(t, DTensor), isinstance(dt.ones(4), DTensor)

    assert run_on((1,), rank) == [(True, True, False)]
