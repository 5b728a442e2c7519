"""Steps from placements to placements: their order as data, and that they move what they should."""

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.tensor.movement import plan
from disttrain.distributed.tensor.placements import Partial, Replicate, Shard
from disttrain.errors import PlacementError
from support.meshes import run_on

pytestmark = pytest.mark.simulated
R, P, S0, S1 = Replicate(), Partial("sum"), Shard(0), Shard(1)
KINDS = (R, P, S0, S1)


def walked(source, steps):
    """The placements after the steps, each held against where it begins."""
    now = list(source)
    for step in steps:
        assert tuple(now) == step.before and now[step.axis] == step.source
        now[step.axis] = step.target
    return tuple(now)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_every_plan_ends_where_it_should(axes):
    for source in itertools.product(KINDS, repeat=axes):
        for target in itertools.product(KINDS, repeat=axes):
            steps = plan(source, target)
            assert walked(source, steps) == target
            assert len(steps) <= 2 * axes


def test_nothing_moves_that_need_not():
    assert plan((S0, S1), (S0, S1)) == []
    assert [s.axis for s in plan((S0, P), (S0, R))] == [1]
    assert [(s.source, s.target) for s in plan((S0,), (S1,))] == [(S0, S1)]
    assert [(s.source, s.target) for s in plan((P,), (S0,))] == [(P, S0)]


def test_cuts_of_one_dimension_are_undone_from_the_last():
    assert [s.axis for s in plan((S0, S0), (R, R))] == [1, 0]
    assert [s.axis for s in plan((R, R), (S0, S0))] == [0, 1]
    # The first axis cannot leave while the second one has cut what it left.
    steps = plan((S0, S0), (R, S0))
    assert [(s.axis, s.target) for s in steps] == [(1, R), (0, R), (1, S0)]


@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (1, 7)])
def test_numbers_arrive(shape):
    def ranks(mesh):
        whole = dt.arange(float(np.prod(shape))).reshape(shape)
        there = dt.distributed.tensor.distribute_tensor(whole, mesh, [S0, R])
        ends = []
        for target in itertools.product((R, S0, S1), repeat=2):
            there = there.redistribute(mesh, target)
            ends.append(there.full_tensor().tolist())
        return ends

    wanted = np.arange(float(np.prod(shape))).reshape(shape).tolist()
    for ends in run_on((2, 2), ranks):
        assert all(end == wanted for end in ends)


def test_an_average_of_integers_is_refused():
    def ranks(mesh):
        local = dt.ones(4, dtype=dt.int64)
        parts = dt.distributed.tensor.DTensor.from_local(local, mesh, [Partial("avg")])
        with pytest.raises(PlacementError, match=r"int64.*use Partial.'sum'"):
            parts.redistribute(mesh, [R])
        flags = dt.distributed.tensor.DTensor.from_local(local > 0, mesh, [Partial("max")])
        return flags.redistribute(mesh, [R]).to_local().tolist()

    assert run_on((2,), ranks) == [[True] * 4] * 2
