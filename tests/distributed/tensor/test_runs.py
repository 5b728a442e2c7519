"""What is decided once for a call on distributed arrays, and what that depends on."""

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.tensor.placements import Replicate, Shard
from disttrain.distributed.tensor.runs import decide, key_of
from disttrain.distributed.tensor.spread import Spread
from disttrain.ops.layouts import layout_of
from disttrain.ops.primitives.elementwise import add
from disttrain.ops.primitives.random import draw_normal
from disttrain.ops.primitives.views import reshape
from support.meshes import run_on

pytestmark = pytest.mark.simulated


def spread(mesh, shape, placement, kind="f4"):
    own = list(shape)
    if isinstance(placement, Shard):
        own[placement.dim] //= mesh.size()
    return Spread(np.zeros(own, kind), mesh, (placement,), shape)


def test_a_key_is_what_decides():
    def rank(mesh):
        a, b = (spread(mesh, (4, 4), Shard(k)) for k in (0, 1))
        same = key_of(add, [a, a], {})
        assert same == key_of(add, [spread(mesh, (4, 4), Shard(0)), a], {})
        others = [
            key_of(add, [a, b], {}),
            key_of(add, [a, 2.0], {}),
            key_of(add, [spread(mesh, (8, 4), Shard(0))] * 2, {}),
            key_of(add, [spread(mesh, (4, 4), Shard(0), "f8")] * 2, {}),
            key_of(reshape, [a, a], {}),
            key_of(reshape, [a, a], {"shape": (2, 8)}),
        ]
        assert len({same, *others}) == 1 + len(others)

    run_on((2,), rank)


def test_what_is_decided_anew_each_time():
    def rank(mesh):
        a = spread(mesh, (4, 4), Shard(0))
        assert key_of(draw_normal, [a], {}) is None
        assert key_of(add, [a, np.zeros(2)], {}) is None
        assert key_of(add, [a], {"where": [1]}) is None

    run_on((1,), rank)


def test_places_that_are_read_are_told_apart_by_what_they_say():
    def rank(mesh):
        a = spread(mesh, (4, 4), Shard(0))
        keys = {key_of(add, [a], {"index": (slice(0, k),)}) for k in (1, 2)}
        keys.add(key_of(add, [a], {"index": (slice(0, 1),), "shape": (4,)}))
        return len(keys)

    assert run_on((1,), rank) == [3]


def test_a_decision_for_this_rank():
    def rank(mesh):
        a = spread(mesh, (4, 6), Shard(0))
        params = {"shape": (4, 2, 3)}
        run = decide(reshape, [a], params, mesh, layout_of(reshape, [a], params))
        return (
            run.choice.ins,
            run.choice.outs,
            run.params,
            run.full,
            run.empty,
            list(run.cuts.values()),
        )

    for k, found in enumerate(run_on((2,), rank)):
        ins, outs, params, full, empty, cuts = found
        assert ins == ((Shard(0),),) and outs == ((Shard(0),),)
        assert params == {"shape": (2, 2, 3)} and full == {0: (4, 2, 3)}
        assert not empty and [tuple(c) for c in cuts] == [(2, 2 * k, 4)]


def test_nothing_is_cut_where_all_is_whole():
    def rank(mesh):
        a = spread(mesh, (4, 6), Replicate())
        run = decide(add, [a, a], {}, mesh, layout_of(add, [a, a], {}))
        return run.cuts, run.choice.outs, run.empty

    assert run_on((2,), rank) == [({}, ((Replicate(),),), False)] * 2


def test_decisions_are_kept_with_the_mesh():
    def rank(mesh):
        t = dt.distributed.tensor.distribute_tensor(dt.ones(4, 6), mesh, [Shard(0)])
        return [(t + t).full_tensor().sum().item() for _ in range(3)]

    assert run_on((2,), rank) == [[48.0] * 3] * 2
