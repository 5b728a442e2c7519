"""Which placements an operation runs under: data in, data out."""

import pytest

from disttrain.distributed.tensor.choice import Given, choose, moving, name_sizes
from disttrain.distributed.tensor.placements import Partial, Replicate, Shard
from disttrain.ops.layouts.layout import Layout, each, together

R, P = Replicate(), Partial("sum")
ADD = Layout((("a", "b"), ("a", "b")), (("a", "b"),), linear=together(0, 1))
PRODUCT = Layout((("m", "k"), ("k", "n")), (("m", "n"),), reduce="sum", linear=each(0, 1))


def given(shape, *placements, itemsize=4):
    return Given(shape, itemsize, placements)


def test_what_is_cut_alike_stays():
    cut = given((8, 4), Shard(0))
    assert choose(ADD, (cut, cut), (2,)) == (((Shard(0),), (Shard(0),)), ((Shard(0),),))


def test_the_whole_one_is_cut_to_fit_for_nothing():
    found = choose(ADD, (given((8, 4), Shard(1)), given((8, 4), R)), (2,))
    assert found.ins == ((Shard(1),), (Shard(1),))


def test_the_larger_argument_stays():
    small, large = given((2, 4096), Shard(0)), given((4096, 4096), Shard(1))
    found = choose(PRODUCT, (small, large), (2,))
    assert found == (((R,), (Shard(1),)), ((Shard(1),),))


def test_a_cut_sum_is_a_partial_one():
    found = choose(PRODUCT, (given((8, 64), Shard(1)), given((64, 8), Shard(0))), (2,))
    assert found == (((Shard(1),), (Shard(0),)), ((P,),))


def test_partial_sums_pass_what_is_linear():
    found = choose(ADD, (given((8, 4), P), given((8, 4), P)), (2,))
    assert found == (((P,), (P,)), ((P,),))


def test_partial_sums_do_not_pass_what_is_not():
    times = Layout((("a",), ("a",)), (("a",),))
    found = choose(times, (given((8,), P), given((8,), P)), (2,))
    assert not any(p.is_partial() for ps in (*found.ins, *found.outs) for p in ps)


def test_what_must_be_whole_is_made_so():
    sort = Layout((("a", None),), (("a", None),))
    assert choose(sort, (given((8, 4), Shard(1)),), (2,)).ins[0][0] != Shard(1)


def test_each_axis_of_the_mesh_is_decided():
    x, w = given((8, 64), Shard(0), R), given((64, 8), R, Shard(1))
    found = choose(PRODUCT, (x, w), (2, 2))
    assert found == (((Shard(0), R), (R, Shard(1))), ((Shard(0), Shard(1)),))


def test_parts_that_must_be_even():
    groups = Layout((("g",),), (("g",),), even={"g": 3})
    assert choose(groups, (given((12,), Shard(0)),), (2,)).ins == ((R,),)
    assert choose(groups, (given((12,), Shard(0)),), (3,)).ins == ((Shard(0),),)


def test_a_maximum_of_nothing_is_avoided():
    top = Layout((("a", "b"),), (("a",),), reduce="max")
    even, uneven = (choose(top, (given((64, n), Shard(1)),), (2,)) for n in (6, 5))
    assert even == (((Shard(1),),), ((Partial("max"),),))
    assert uneven.ins[0][0] != Shard(1)


def test_what_is_added_to_a_sum_counts_once():
    shape = (("m", "k"), ("k", "n"), ("n",))
    biased = Layout(shape, (("m", "n"),), reduce="sum", once=frozenset([2]))
    args = given((8, 640), Shard(1)), given((640, 8), Shard(0)), given((8,), R)
    assert choose(biased, args, (2,)) == (((Shard(1),), (Shard(0),), (P,)), ((P,),))


def test_partial_sums_and_averages_do_not_mix():
    found = choose(ADD, (given((8, 4), P), given((8, 4), Partial("avg"))), (2,))
    assert not any(p.is_partial() for ps in (*found.ins, *found.outs) for p in ps)


def test_arguments_that_are_no_arrays():
    add_one = Layout((("a",), None), (("a",),))
    found = choose(add_one, (given((8,), Shard(0)), None), (2,))
    assert found == (((Shard(0),), None), ((Shard(0),),))
    assert name_sizes(add_one, (given((8,), R), None)) == {"a": 8}


@pytest.mark.parametrize("n", [2, 4, 8])
def test_what_moving_costs(n):
    assert moving(Shard(0), Shard(0), n) == 0 == moving(P, R, 1)
    assert 0 < moving(R, Shard(0), n) < moving(Shard(0), Shard(1), n)
    assert moving(Shard(0), Shard(1), n) < moving(Shard(0), R, n) < moving(P, R, n)
    assert moving(P, Shard(0), n) < moving(P, R, n)
