"""What operations move between members, as data."""

import numpy as np
import pytest

from disttrain.comm.calls.header import Call
from disttrain.comm.calls.reduce_ops import ReduceOp
from disttrain.comm.transports.sim.exchange import Part, bytes_of, misfit, move

CALL = Call("all_reduce", args="x", site="a.py:1", dtype=np.dtype("f4"), numel=1)


def f4(*values):
    return np.array(values, np.float32)


def parts(verb, ins, outs, **more):
    return [Part(CALL, verb, i, o, **more) for i, o in zip(ins, outs, strict=True)]


@pytest.mark.parametrize(
    ("op", "total"), [(ReduceOp.SUM, [5, 9]), (ReduceOp.MAX, [4, 7]), (ReduceOp.PRODUCT, [4, 14])]
)
def test_all_reduce(op, total):
    outs = [[f4(1, 2)], [f4(4, 7)]]
    move(parts("all_reduce", [[]] * 2, outs, op=op))
    assert [o.tolist() for (o,) in outs] == [total] * 2


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(root):
    outs = [[f4(k)] for k in range(3)]
    move(parts("broadcast", [[]] * 3, outs, root=root))
    assert [o.tolist() for (o,) in outs] == [[root]] * 3


def test_all_gather_with_parts_of_any_size():
    sources = [f4(1), f4(2, 3), f4()]
    outs = [[np.zeros_like(s) for s in sources] for _ in sources]
    move(parts("all_gather", [[s] for s in sources], outs))
    assert [[o.tolist() for o in mine] for mine in outs] == [[[1], [2, 3], []]] * 3


def test_reduce_scatter_into_the_own_input():
    ins = [[f4(1), f4(2)], [f4(10), f4(20)]]
    outs = [[ins[0][0]], [ins[1][1]]]
    move(parts("reduce_scatter", ins, outs, op=ReduceOp.SUM))
    assert [o.tolist() for (o,) in outs] == [[11], [22]]


def test_all_to_all():
    ins = [[f4(1), f4(2, 2)], [f4(3), f4()]]
    outs = [[f4(0), f4(0)], [f4(0, 0), f4()]]
    move(parts("all_to_all", ins, outs))
    assert [[o.tolist() for o in mine] for mine in outs] == [[[1], [3]], [[2, 2], []]]


@pytest.mark.parametrize("verb", ["barrier", "split", "close"])
def test_what_moves_nothing(verb):
    both = parts(verb, [[], []], [[], []])
    move(both)
    assert bytes_of(both) == 0


def test_bytes():
    two, three = f4(1, 2), f4(1, 2, 3)
    assert bytes_of(parts("all_reduce", [[]], [[two]])) == 8
    assert bytes_of(parts("all_gather", [[two]], [[two, three]])) == 20
    assert bytes_of(parts("reduce_scatter", [[two, two]], [[two]])) == 16
    assert bytes_of(parts("all_to_all", [[two], [three]], [[two, two], [two]])) == 16


def test_sizes_that_do_not_fit():
    ins = [[f4(1), f4(2, 2)], [f4(3), f4()]]
    outs = [[f4(0), f4(0)], [f4(0), f4()]]
    assert misfit(parts("all_to_all", ins, outs), [4, 7]) == ""
    said = misfit(parts("all_to_all", ins, outs, ragged=True), [4, 7])
    assert said == "rank 4 has 2 elements for rank 7, which expects 1."
    outs[1][0] = f4(0, 0)
    assert misfit(parts("all_to_all", ins, outs, ragged=True), [4, 7]) == ""
