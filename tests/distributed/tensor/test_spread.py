"""A distributed array as data: shapes and strides of the whole, and that it gives no numbers."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends.null import NullArray
from disttrain.distributed.tensor.placements import Replicate, Shard
from disttrain.distributed.tensor.spread import Spread
from disttrain.errors import PlacementError
from support.meshes import run_on

pytestmark = pytest.mark.simulated


def spread(mesh, rows=3):
    return Spread(np.arange(rows * 4.0).reshape(rows, 4), mesh, (Shard(0),), (5, 4))


def test_it_has_the_shape_of_the_whole_and_the_numbers_of_a_part():
    def rank(mesh):
        a = spread(mesh, 3 - mesh.get_local_rank())
        return (
            a.shape,
            a.local_shape(),
            a.strides,
            a.flags.c_contiguous,
            a.dtype,
            a.place,
            a.has_data,
        )

    whole = (5, 4), (32, 8), True, np.dtype("f8"), ("cpu", None), True
    for found, rows in zip(run_on((2,), rank), (3, 2), strict=True):
        assert found[1] == (rows, 4)
        assert (found[0], *found[2:]) == whole


def test_steps_are_those_of_a_view():
    def rank(mesh):
        a = spread(mesh)
        a.steps = (8, 40)
        seen = a.stand_in()
        return a.strides, seen.strides, seen.shape, a.flags.f_contiguous

    assert run_on((1,), rank) == [((8, 40), (8, 40), (5, 4), True)]


def test_others_made_of_it():
    def rank(mesh):
        a = spread(mesh)
        twice, copy = a.each_part(lambda part: part * 2), a.copy()
        made = a.make(np.zeros(2), (Replicate(),), (2,))
        a.local[...] = -1
        assert type(made) is Spread and made.placements == (Replicate(),) and made.shape == (2,)
        assert a.shares_with(a) and not a.shares_with(copy) and not a.shares_with(a.local)
        copy.writes = a.writes
        assert a.shares_with(copy)
        return twice.local.sum(), copy.local.sum(), copy.shape

    assert run_on((1,), rank) == [(132.0, 66.0, (5, 4))]


def test_without_data():
    def rank(mesh):
        a = Spread(NullArray((3, 4), np.dtype("f4")), mesh, (Shard(0),), (5, 4))
        return a.has_data, a.strides

    assert run_on((1,), rank) == [(False, (16, 4))]


@pytest.mark.parametrize(
    "use",
    [np.asarray, bool, float, int, list, lambda a: a[0], lambda a: a.tolist(),
     lambda a: a.reshape(-1), lambda a: a.astype("f4"), lambda a: a.__array_interface__],
)  # fmt: skip
def test_it_is_no_plain_array(use):
    def rank(mesh):
        with pytest.raises(PlacementError, match=r"\[5, 4\].*holds only a part.*full_tensor"):
            use(spread(mesh))

    run_on((1,), rank)


def test_it_names_itself():
    def rank(mesh):
        return repr(spread(mesh))

    (text,) = run_on((1,), rank)
    assert text.startswith("Spread((5, 4), float64, (Shard(dim=0),) on DeviceMesh(")
    assert dt.float64.itemsize == 8
