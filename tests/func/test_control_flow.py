"""Control flow as functions: eagerly, inside transforms, captured, and where it is refused."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import ConfigError, ShapeError

X = dt.tensor([1.0, 2.0, 3.0])


def doubled(v):
    """Until it is ten or more."""
    return func.while_loop(lambda a: a.sum() < 10, lambda a: (a * 2,), (v,))[0]


def chosen(v):
    return func.cond(v.sum() > 1.5, lambda a: a * a, lambda a: -a, (v,))


def test_cond_takes_one_branch():
    ran = []

    def note(name, out):
        ran.append(name)
        return out

    x = X.clone().requires_grad_()
    out = func.cond(x.sum() > 0, lambda a: {"a": note(1, a * 2)}, lambda a: {"a": note(2, a)}, (x,))
    out["a"].sum().backward()
    assert ran == [1] and x.grad.tolist() == [2.0] * 3
    assert func.cond(False, lambda: 1, lambda: 2) == 2
    parts = func.cond(dt.tensor([False]), lambda p: p["x"], lambda p: p["x"] + 1, ({"x": X},))
    assert parts.tolist() == [2.0, 3.0, 4.0]


def test_while_loop_carries():
    x = X.clone().requires_grad_()
    count, out = func.while_loop(
        lambda i, y: i.sum() < 3, lambda i, y: (i + 1, y * 2), (dt.zeros(()), x)
    )
    out.sum().backward()
    assert count.item() == 3.0 and x.grad.tolist() == [8.0] * 3
    assert func.while_loop(lambda i: i < 4, lambda i: (i + 3,), (0,)) == (6,)
    (same,) = func.while_loop(lambda a: a.sum() > 99, lambda a: (a,), (X,))
    assert same is not X and same.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("body", "out"),
    [
        (lambda i: i + 1, lambda i: i), (lambda i: [i + 1], lambda i: [i]),
        (lambda i: {"i": i + 1}, lambda i: {"i": i}), (lambda i: ((i + 1,),), lambda i: ((i,),)),
    ],
)  # fmt: skip
def test_a_loop_gives_what_its_body_gives(body, out):
    loop = lambda x: func.while_loop(lambda i: i < 3, body, (x,))
    assert loop(0) == out(3)
    assert loop(5) == (5,)  # (a body that never runs has told nothing)
    run = dt.compile(loop)
    for start in (0, 1, 0):
        found = run(dt.tensor(float(start)))
        assert found == loop(dt.tensor(float(start))) == out(3.0)
    both = func.vmap(lambda x: dt.func.while_loop(lambda i: i < 3, lambda i: i + 1, (x,)))
    assert both(dt.tensor([0.0, 2.0, 7.5])).tolist() == [3.0, 3.0, 7.5]


def test_a_scan_may_give_a_list():
    carry, outs = func.scan(lambda c, v: [c + v, c], dt.zeros(()), X)
    assert carry.item() == 6 and outs.tolist() == [0.0, 1.0, 3.0]


def test_scan_stacks_along_its_dimension():
    def add(carry, v):
        return carry + v, carry * v

    table = dt.arange(6).float().view(2, 3)
    for dim, reverse in ((0, False), (1, False), (-1, True)):
        slices = list(table.unbind(dim))
        carry, outs = dt.zeros_like(slices[0]), []
        for v in reversed(slices) if reverse else slices:
            outs.append(carry * v)
            carry = carry + v
        last, ys = func.scan(add, dt.zeros_like(slices[0]), table, dim=dim, reverse=reverse)
        expected = dt.stack(outs[::-1] if reverse else outs, dim)
        assert dt.equal(last, carry) and dt.equal(ys, expected)
    x = X.clone().requires_grad_()
    carry, _ = func.scan(lambda c, v: (c * v, v * 1), dt.ones(()), x)
    carry.backward()
    assert x.grad.tolist() == [6.0, 3.0, 2.0]
    assert func.scan(add, X, []) == (X, [])


def test_map_stacks_what_it_gets_of_slices():
    got = func.map(lambda v, k: {"a": v["x"] * k, "b": (v["x"].sum(),)}, {"x": X.view(3, 1)}, 2.0)
    assert got["a"].tolist() == [[2.0], [4.0], [6.0]] and got["b"][0].tolist() == [1.0, 2.0, 3.0]


def test_examples_of_a_batch_decide_each_for_itself():
    batch = dt.tensor([0.5, 2.0, 3.0])
    assert func.vmap(chosen)(batch).tolist() == [-0.5, 4.0, 9.0]
    assert func.vmap(doubled)(batch).tolist() == [16.0, 16.0, 12.0]
    assert func.vmap(func.grad(chosen))(batch).tolist() == [-1.0, 4.0, 6.0]
    assert func.vmap(func.vmap(doubled))(batch.view(3, 1)).tolist() == [[16.0], [16.0], [12.0]]
    assert func.vmap(lambda v, p: func.cond(p, lambda a: a + 1, lambda a: a, (v,)), (0, None))(
        batch, dt.tensor(True)
    ).tolist() == [1.5, 3.0, 4.0]
    rows = func.vmap(lambda v: func.scan(lambda c, t: (c + t, c * 1), dt.zeros(()), v)[0])
    assert rows(X.view(1, 3).expand(2, 3)).tolist() == [6.0, 6.0]


def test_derivatives_go_through():
    assert func.grad(lambda v: chosen(v).sum())(X).tolist() == [2.0, 4.0, 6.0]
    out, tangent = func.jvp(doubled, (X,), (dt.ones(3),))
    assert out.tolist() == [2.0, 4.0, 6.0] and tangent.tolist() == [2.0] * 3
    assert func.hessian(lambda v: chosen(v).sum())(X).tolist() == (dt.eye(3) * 2).tolist()


def test_captures_take_them_as_one_instruction():
    for fn in (chosen, doubled):
        run = dt.compile(fn)
        for v in (0.25, 3.0, 0.25, 1.0, 3.0):
            x = dt.full((2,), v)
            assert run(x).tolist() == fn(x).tolist()
        assert "0 eager" in run.explain() and len(run.graphs) == 1


def test_captures_take_as_paths_what_cannot_be_staged():
    def read(v):
        return func.cond(v.sum() > 1.5, lambda a: a * a.sum().item(), lambda a: -a, (v,))

    run = dt.compile(read)
    for v in (0.25, 3.0, 0.25, 1.0):
        x = dt.full((2,), v)
        assert run(x).tolist() == read(x).tolist()
    assert "0 eager" in run.explain() and len(run.graphs) > 1


def test_a_loop_with_numbers_as_bounds_has_a_way_back():
    def f(v):
        return func.fori_loop(1, 4, lambda i, c: dt.sin(c) * i, v)

    v = dt.tensor(0.3)
    want = v.clone().requires_grad_()
    out = dt.sin(dt.sin(dt.sin(want) * 1) * 2) * 3
    out.backward()
    assert f(v).item() == pytest.approx(out.item())
    assert func.grad(f)(v).item() == pytest.approx(want.grad.item())
    assert func.fori_loop(3, 3, lambda i, c: c + 1, v) is v
    to = dt.compile(lambda n, v: func.fori_loop(0, n, lambda i, c: c + i, v))
    assert [to(dt.tensor(n), dt.tensor(1)).item() for n in (0, 3, 5)] == [1, 4, 11]


def test_switch_takes_the_branch_of_a_number():
    branches = (lambda a: a + 1, lambda a: a * 2, lambda a: -a)
    for i in (-3, 0, 1, 2, 9):
        want = branches[min(max(i, 0), 2)](X).tolist()
        assert func.switch(i, branches, X).tolist() == want
        assert func.switch(dt.tensor(i), branches, X).tolist() == want
    run = dt.compile(lambda i: func.switch(i, branches, X))
    assert [run(dt.tensor(i)).tolist() for i in (0, 2)] == [[2, 3, 4], [-1, -2, -3]]
    assert len(run.graphs) == 1


def test_what_does_not_fit_is_refused():
    def same(a):
        return a

    def scalar(a):
        return a.sum()

    for given, message in (
        ((X > 0, same, same, (X,)), "single-element"),
        ((X.sum() > 0, same, 3, (X,)), "branches to be callable"),
        ((X.sum() > 0, same, same, (3,)), "tensor leaves"),
        ((X.sum() > 0, lambda a: a.add_(1), same, (X.clone(),)), "written to in place"),
    ):
        with pytest.raises(ConfigError, match=message):
            func.cond(*given)
    with pytest.raises(ShapeError, match="true_fn and false_fn must have the same structure"):
        func.vmap(lambda v: func.cond(v.sum() > 3, same, scalar, (v,)))(dt.ones(2, 3))
    with pytest.raises(ShapeError, match="carried_inputs and what body_fn returns"):
        func.while_loop(lambda a: a.sum() < 9, lambda a: (a.sum(),), (X,))
    with pytest.raises(ConfigError, match="boolean scalar"):
        func.while_loop(lambda a: a, lambda a: (a + 1,), (X,))
    with pytest.raises(ShapeError, match=r"given \['float32\[3\]'\] and \['float32\[3\]', 'int'\]"):
        func.while_loop(lambda a: a.sum() < 9, lambda a: (a + 1, 3), (X,))
    with pytest.raises(ConfigError, match="Reverse must be a bool"):
        func.scan(lambda c, v: (c, v), X, X, reverse=1)
    with pytest.raises(ConfigError, match="init leaves must be a Tensor"):
        func.scan(lambda c, v: (c, v), 1.0, X)
    with pytest.raises(ShapeError, match="next carry"):
        func.scan(lambda c, v: (c + v, v), dt.zeros(()), dt.ones(3, 2))
    with pytest.raises(ShapeError, match="cannot be 0"):
        func.map(same, dt.zeros(0, 2))
    with pytest.raises(ShapeError, match="must be consistent"):
        func.map(lambda v: v[0], (dt.zeros(3, 2), dt.zeros(2, 2)))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_prefixes_by_an_associative_function(count, reverse, dim):
    x = dt.arange(1.0, 3 * count + 1, dtype=dt.float64).reshape(3, count)
    x = x.mT.contiguous() if dim == 0 else x
    found = func.associative_scan(lambda a, b: a * b, x, dim, reverse=reverse)
    turned = x.flip(dim) if reverse else x
    want = turned.cumprod(dim)
    assert dt.allclose(found, want.flip(dim) if reverse else want)


def test_prefixes_of_structures_and_their_gradients():
    """The recurrence h = a h + b, whose steps are combined as pairs (a, b)."""
    a = dt.tensor([[0.5, 0.2, 0.9, 0.4, 0.1]], requires_grad=True)
    b = dt.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]], requires_grad=True)

    def step(p, q):
        return {"a": p["a"] * q["a"], "b": p["b"] * q["a"] + q["b"]}

    found = func.associative_scan(step, {"a": a, "b": b}, 1, combine_mode="generic")["b"]
    h, want = dt.zeros(1), []
    for i in range(5):
        h = a[:, i] * h + b[:, i]
        want.append(h)
    assert dt.allclose(found, dt.stack(want, 1))
    pairs = (dt.autograd.grad(y.sum(), [a, b]) for y in (found, dt.stack(want, 1)))
    assert all(dt.allclose(x, y) for x, y in zip(*pairs, strict=True))


def test_what_an_associative_scan_refuses():
    with pytest.raises(ConfigError, match="Combine_mode"):
        func.associative_scan(lambda a, b: a, dt.ones(2), 0, combine_mode="other")
    with pytest.raises(ConfigError, match="at least 1"):
        func.associative_scan(lambda a, b: a, [], 0)
    with pytest.raises(ShapeError, match="consistent"):
        func.associative_scan(lambda a, b: a, [dt.ones(2), dt.ones(3)], 0)
