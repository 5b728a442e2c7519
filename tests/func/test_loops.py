"""Loops and branches as instructions: every rule beside the same statements written out."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import AutogradError
from disttrain.func.instructions import run_scan, run_switch, run_while, staged
from disttrain.func.loops import Scan

X = dt.tensor(np.linspace(-1, 1, 12).reshape(4, 3))
W = dt.tensor(np.linspace(-0.5, 0.7, 9).reshape(3, 3))
H = dt.tensor([0.3, -0.2, 0.5], dtype=dt.float64)


def turn(w):
    return lambda h, x: (dt.tanh(w @ h + x), (h * x).sum())


def scanned(w, h, x, reverse=False):
    body = staged(turn(w), [h, x[0]])
    (last,), (ys,) = run_scan(body, [h], [x], x.shape[0], reverse)
    return last, ys


def written_out(w, h, x, reverse=False):
    ys = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        h, ys[t] = turn(w)(h, x[t])
    return h, dt.stack(ys)


def loss(fn, reverse=False):
    return lambda w, h, x: (lambda c, y: (c * c).sum() + dt.sin(y).sum())(*fn(w, h, x, reverse))


def same(a, b):
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for one, two in zip(a, b, strict=True):
            same(one, two)
    else:
        assert a.dtype == b.dtype and dt.allclose(a, b)


TRANSFORMS = {
    "values": lambda f: f,
    "grad": lambda f: func.grad(f, argnums=(0, 1, 2)),
    "forward": lambda f: func.jacfwd(f, argnums=2),
    "hessian": lambda f: func.hessian(f, argnums=1),
    "reverse twice": lambda f: func.jacrev(func.jacrev(f, argnums=1), argnums=2),
    "forward twice": lambda f: func.jacfwd(func.jacfwd(f, argnums=1), argnums=1),
    "batch": lambda f: lambda w, h, x: func.vmap(f, (None, 0, None))(w, dt.stack([h, 2 * h]), x),
    "batch of slices": lambda f: (
        lambda w, h, x: func.vmap(f, (0, None, 1))(dt.stack([w, -w]), h, dt.stack([x, x + 1], 1))
    ),
    "batch of gradients": lambda f: (
        lambda w, h, x: func.vmap(func.grad(f), (None, 0, None))(w, dt.stack([h, 2 * h]), x)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_a_scan_in_every_transform(name, reverse, captured):
    made = TRANSFORMS[name](loss(scanned, reverse))
    run = dt.compile(made) if captured else made
    want = TRANSFORMS[name](loss(written_out, reverse))(W, H, X)
    for _ in range(2 if captured else 1):
        same(run(W, H, X), want)


def test_a_long_scan_is_one_instruction():
    step = dt.compile(func.grad(loss(scanned)))
    x = dt.rand(2000, 3, dtype=dt.float64)
    first, second = step(W, H, x), step(W, H, x)
    assert dt.equal(first, second) and dt.equal(first, func.grad(loss(scanned))(W, H, x))
    assert len(step.graphs[0].instructions) < 20


def test_gradients_of_a_compiled_scan_from_outside():
    run, w = dt.compile(loss(scanned)), W.clone().requires_grad_()
    for _ in range(2):
        w.grad = None
        run(w, H, X).backward()
        assert dt.allclose(w.grad, func.grad(loss(written_out))(W, H, X))


def test_integers_beside_what_moves_have_no_gradient():
    def f(v):
        body = staged(lambda n, c, x: (n + 1, c * x * n, n), [dt.tensor(1), v[0], v[0]])
        (n, c), (ns,) = run_scan(body, [dt.tensor(1), v[0]], [v], 4)
        return c + ns.sum()

    v = dt.tensor([0.5, 1.5, 2.0, -1.0])
    assert func.grad(f)(v).tolist() == [2 * 24 * 0.5 * -3.0, 24 * -0.5, 24 * -0.375, 24 * 0.75]


def test_what_was_kept_is_given_again_without_it():
    body = staged(lambda c, x: (c * x, c), [H, H])
    plain, keeping = (Scan(body.body, 0, 1, 4, False, keep) for keep in (False, True))
    h, x = H.clone().requires_grad_(), X.clone().requires_grad_()
    rows = [dt.autograd.grad(s(h, x)[0].sum() + s(h, x)[1].sum(), [h, x]) for s in (plain, keeping)]
    same(*rows)


def counted(v, limit=10.0):
    going = staged(lambda a, n: a.sum() < limit, [v, dt.tensor(0)])
    body = staged(lambda a, n: (a * 2, n + 1), [v, dt.tensor(0)])
    return run_while(going, body, [v, dt.tensor(0)])


def test_a_while_turns_as_often_as_its_data_say():
    run = dt.compile(lambda v: counted(v))
    for start, times in ((1.0, 2), (0.0078125, 9), (50.0, 0), (4.0, 0), (0.5, 3)):
        a, n = run(dt.full((3,), start))
        assert n.item() == times and a.tolist() == [start * 2**times] * 3
    assert len(run.graphs) == 1
    batch = dt.tensor([[1.0], [0.015625], [50.0]])
    for fn in (counted, lambda v: run.fn(v)):
        a, n = func.vmap(fn)(batch)
        assert n.tolist() == [4, 10, 0] and a[:, 0].tolist() == [16.0, 16.0, 50.0]
    out, moved = func.jvp(lambda v: counted(v)[0], (batch[1],), (dt.ones(1),))
    assert moved.tolist() == [1024.0] and out.tolist() == a[1].tolist()


def test_there_is_no_way_back_through_a_while():
    with pytest.raises(AutogradError, match="Reverse-mode differentiation does not work"):
        func.grad(lambda v: counted(v)[0].sum())(dt.ones(2))
    with pytest.raises(ValueError, match="Use scan"):
        dt.compile(func.grad(lambda v: counted(v)[0].sum()))(dt.ones(2))


BRANCHES = (lambda v: (dt.sin(v), v), lambda v: (v * v * H, H + 0 * v), lambda v: (-v, v * W[0]))


def chosen(i, v):
    return run_switch(i, [staged(f, [v]) for f in BRANCHES], [v])


@pytest.mark.parametrize("i", [-1, 0, 1, 2, 5])
def test_a_switch_in_every_transform(i):
    branch = BRANCHES[min(max(i, 0), 2)]
    at = dt.tensor(i)
    same(chosen(at, H), list(branch(H)))
    f, g = (lambda v: chosen(at, v)[0].sum()), (lambda v: branch(v)[0].sum())
    for t in (func.grad, func.hessian, func.jacfwd, lambda h: func.vmap(h)):
        given = dt.stack([H, 2 * H]) if t.__name__ == "<lambda>" else H
        same(t(f)(given), t(g)(given))


def test_a_captured_switch_takes_each_branch():
    run = dt.compile(lambda i, v: chosen(i, v)[0])
    for i in (0, 2, 1, 0):
        same(run(dt.tensor(i), H), BRANCHES[i](H)[0])
    assert len(run.graphs) == 1


def test_examples_choose_each_for_itself():
    index, vs = dt.tensor([0, 1, 2]), dt.stack([H, 2 * H, -H])
    got = func.vmap(chosen)(index, vs)
    want = [dt.stack(row) for row in zip(*(BRANCHES[i](vs[i]) for i in range(3)), strict=True)]
    same(got, want)
    rows = func.vmap(func.grad(lambda v, i: chosen(i, v)[0].sum()))(vs, index)
    same(rows, dt.stack([func.grad(lambda v, f=f: f(v)[0].sum())(v)
                         for f, v in zip(BRANCHES, vs, strict=True)]))  # fmt: skip


def test_nested_loops_and_branches():
    def inner(i, u):
        return func.cond(u.sum() > 0, lambda a: dt.sin(a), lambda a: a * a - 1, (u,))

    def outer(c, x):
        n = func.fori_loop(0, 3, inner, c + x)
        return n, n.max()

    def f(h):
        last, ys = func.scan(outer, h, X)
        return last.sum() + ys.sum()

    run = dt.compile(f)
    assert dt.allclose(run(H), f(H)) and len(run.graphs[0].instructions) < 12
    for t in (func.grad, func.jacfwd):
        same(dt.compile(t(f))(H), t(f)(H))
        numbers = [(f(H + e) - f(H - e)) / 2e-6 for e in dt.eye(3, dtype=dt.float64) * 1e-6]
        assert dt.allclose(t(f)(H), dt.stack(numbers), 1e-4, 1e-6)
