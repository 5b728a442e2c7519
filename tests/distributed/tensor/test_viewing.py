"""Views of distributed arrays share memory, as the program sees it, also where data has moved."""

import pytest

import disttrain as dt
from disttrain.distributed.tensor import Replicate, Shard
from support.meshes import numbers, run_on, spread

pytestmark = pytest.mark.simulated

VIEWS = {
    "transpose": lambda t: t.t(),
    "row": lambda t: t[1],
    "columns": lambda t: t[:, 1:3],
    "flat": lambda t: t.view(-1),
    "reshaped": lambda t: t.reshape(2, 12),
    "of a view": lambda t: t.t()[2],
    "part of several": lambda t: t.unbind(0)[2],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "diagonal": lambda t: t.diagonal(),
}


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writes_go_both_ways(view, placement):
    def of_one():
        whole = numbers(4, 6).clone()
        seen = view(whole)
        seen.mul_(2.0)
        first = whole.clone()
        whole.add_(1.0)
        return first.tolist(), whole.tolist(), seen.tolist()

    def rank(mesh):
        whole = spread(numbers(4, 6), mesh, [placement])
        seen = view(whole)
        seen.mul_(2.0)
        first = whole.full_tensor().clone()
        whole.add_(1.0)
        return first.tolist(), whole.full_tensor().tolist(), seen.full_tensor().tolist()

    wanted = of_one()
    assert run_on((2,), rank) == [wanted] * 2


def test_two_views_see_each_other():
    def rank(mesh):
        whole = spread(dt.zeros(4, 6), mesh, [Shard(1)])
        flat, turned = whole.view(-1), whole.t()
        flat[0:6] = spread(dt.ones(6), mesh, [Replicate()])
        turned[5].add_(2.0)
        return whole.full_tensor().tolist(), flat.full_tensor().tolist()

    first = [1.0] * 5 + [3.0]
    rest = [[0.0] * 5 + [2.0]] * 3
    for whole, flat in run_on((2,), rank):
        assert whole == [first, *rest]
        assert flat == [number for row in whole for number in row]


def test_a_reshape_that_cannot_be_a_view_is_a_copy():
    def rank(mesh):
        whole = spread(numbers(4, 6), mesh, [Shard(0)])
        before = whole.full_tensor().tolist()
        whole.t().reshape(24).zero_()
        return before == whole.full_tensor().tolist()

    assert run_on((2,), rank) == [True, True]


def test_a_clone_is_apart():
    def rank(mesh):
        whole = spread(numbers(4, 6), mesh, [Shard(0)])
        before = whole.full_tensor().tolist()
        whole.t().clone().zero_()
        return before == whole.full_tensor().tolist()

    assert run_on((2,), rank) == [True, True]
