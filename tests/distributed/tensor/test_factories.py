"""New DTensors: each rank makes its part of what one process would make."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed import tensor as dtensor
from disttrain.distributed.tensor import Partial, Replicate, Shard
from disttrain.errors import PlacementError
from support.meshes import run_on

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("name", "args", "value"),
    [("zeros", (5, 3), 0.0), ("ones", ((5, 3),), 1.0), ("full", ((5, 3), 2.5), 2.5)],
)
def test_values_shapes_and_parts(name, args, value):
    def rank(mesh):
        made = getattr(dtensor, name)(*args, device_mesh=mesh, placements=[Shard(0)])
        whole = made.full_tensor()
        return made.to_local().shape, tuple(made.shape), whole.dtype, whole.tolist()

    first, second = run_on((2,), rank)
    assert (first[0], second[0]) == ((3, 3), (2, 3))
    assert first[1:] == second[1:] == ((5, 3), dt.float32, [[value] * 3] * 5)


def test_types():
    def rank(mesh):
        kinds = [dtensor.full((2,), v, device_mesh=mesh).dtype for v in (1, True, 1.0)]
        return [*kinds, dtensor.zeros(2, dtype=dt.int32, device_mesh=mesh).dtype]

    wanted = [dt.int64, dt.bool, dt.float32, dt.int32]
    assert run_on((2,), rank) == [wanted] * 2


def test_empty_has_a_shape_and_gradients_are_asked_for():
    def rank(mesh):
        made = dtensor.empty(4, 2, device_mesh=mesh, placements=[Shard(1)], requires_grad=True)
        return made.requires_grad, made.to_local().shape, dtensor.ones(2).requires_grad

    with pytest.raises(Exception, match="mesh"):
        dtensor.ones(2)

    def inside(mesh):
        with mesh:
            return rank(mesh)

    assert run_on((2,), inside) == [(True, (4, 1), False)] * 2


@pytest.mark.parametrize("name", ["rand", "randn"])
@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
def test_numbers_are_those_of_one_process(name, placement):
    dt.manual_seed(3)
    wanted = getattr(dt, name)(5, 4).tolist()

    def rank(mesh):
        dt.manual_seed(3)
        made = getattr(dtensor, name)(5, 4, device_mesh=mesh, placements=[placement])
        return made.full_tensor().tolist()

    for got in run_on((2,), rank):
        np.testing.assert_array_equal(got, wanted)


def test_no_new_tensor_is_partial():
    def rank(mesh):
        with pytest.raises(PlacementError, match=r"zeros: .*Partial.*redistribute\(\)"):
            dtensor.zeros(4, device_mesh=mesh, placements=[Partial()])

    run_on((2,), rank)
