"""Loops and branches with collectives inside: of examples, staged and not, as the same without."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func as F
from disttrain.errors import CaptureError
from disttrain.func.live_bodies import chosen, turned, turned_while
from disttrain.func.staging import stage
from disttrain.func.vmap import Batch, run_batch

X = dt.arange(1.0, 4.0)


def over(f):
    return F.vmap(f, axis_name="i")


def staged(fn, *metas):
    return stage(fn, [(shape, "float32") for shape in metas])


def test_scans():
    f = over(lambda x: F.scan(lambda c, r: (F.psum(c, "i") + r, c * 2), x, dt.ones(2)))
    last, rows = f(X)
    assert last.tolist() == [22.0] * 3
    assert rows.tolist() == [[2.0, 14.0], [4.0, 14.0], [6.0, 14.0]]
    body = staged(lambda c, x: [c + x, c * x], (), ())
    carry, (ys,) = turned(body, [dt.tensor(1.0)], [dt.arange(3.0)], range(3)[::-1])
    assert carry[0].item() == 4.0 and ys.tolist() == [0.0, 3.0, 2.0]
    carry, (ys,) = turned(body, [dt.tensor(1.0)], [dt.zeros(0)], range(0))
    assert ys.shape == (0,) and ys.dtype == dt.float32


def test_loops_go_on_while_one_wants_to():
    f = over(lambda x: F.while_loop(lambda c: c < 9, lambda c: c + F.psum(c * 0 + 1, "i"), (x,)))
    assert f(X).tolist() == [10.0, 11.0, 9.0]
    cond, body = staged(lambda c: [c < 9], ()), staged(lambda c: [c * 2], ())
    assert turned_while(cond, body, [dt.tensor(1.0)])[0].item() == 16.0
    with pytest.raises(CaptureError, match="collectives over a named axis"):
        stage(lambda x: turned_while(cond, body, [x]), [((), "float32")])


def test_branches():
    bodies = [staged(lambda x: [x + 1], ()), staged(lambda x: [x * 10], ())]
    assert chosen(dt.tensor(7), bodies, [dt.tensor(2.0)])[0].item() == 20.0
    each = F.vmap(lambda i, x: chosen(i, bodies, [x])[0])(dt.tensor([0, 1, 0]), X)
    assert each.tolist() == [2.0, 20.0, 4.0]


def test_derivatives_inside_of_a_loop_know_what_varies():
    def steps(w, x):
        def step(w, _):
            return w - F.grad(lambda w: (w * x).sum())(w), w

        return F.scan(step, w, dt.zeros(2))[0]

    level = Batch(3, "error", "i", varying=True)
    out = run_batch(level, steps, [dt.tensor(20.0), X], tuple, [None, 0], 0, {})
    assert out.tolist() == [8.0] * 3  # by the sum of all gradients, 6, twice
