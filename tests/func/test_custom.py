"""Functions of tensors with derivative rules of their own."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.func.custom import Rules, apply
from disttrain.func.staging import stage

X = dt.tensor([1.0, 2.0])


def tripled():
    return Rules(
        "tripled",
        lambda x: [x.sin()],
        forward=lambda x: ([x.sin()], [x]),
        pull=lambda res, gs, xs: [3 * gs[0] * res[0]],
    )


def call(x):
    return apply(tripled(), [x])[0]


def test_gradients_are_the_rules():
    assert func.grad(lambda x: call(x).sum())(X).tolist() == [3.0, 6.0]
    assert func.vmap(func.grad(call))(X).tolist() == [3.0, 6.0]
    assert func.grad(lambda x: func.vmap(call)(x).sum())(X).tolist() == [3.0, 6.0]
    assert func.jacrev(call)(X).tolist() == [[3.0, 0.0], [0.0, 6.0]]
    second = func.grad(lambda x: func.grad(lambda y: call(y).sum())(x).sum())(X)
    assert second.tolist() == [3.0, 3.0]


def test_what_is_the_same_for_all_examples_gets_their_sum():
    rules = Rules(
        "product", lambda x, y: [x * y], forward=lambda x, y: ([x * y], [x, y]),
        pull=lambda res, gs, xs: [gs[0] * res[1] * 0.5, None],
    )  # fmt: skip

    def over(x):
        return func.vmap(lambda y: apply(rules, [x, y])[0])(dt.tensor([1.0, 2.0])).sum()

    assert float(func.grad(over)(dt.tensor(5.0))) == 1.5


def test_programs_apply_them_anew():
    staged = stage(lambda x: [call(x).sum()], [((2,), X.meta()[1])])
    run = staged.body
    assert func.grad(lambda x: run(x)[0])(X).tolist() == [3.0, 6.0]
    assert run.run()([X.array])[0] == pytest.approx(float(X.sin().sum()))


def test_forward_mode():
    with pytest.raises(RuntimeError, match="no rule for forward mode"):
        func.jvp(call, (X,), (X,))
    rules = Rules("own", lambda x: [x], push=lambda xs, ts: ([xs[0]], [ts[0] * 5]))
    both = lambda x: apply(rules, [x])[0]
    assert func.jvp(both, (X,), (X,))[1].tolist() == [5.0, 10.0]
    assert func.grad(lambda x: both(x).sum())(X).tolist() == [5.0, 5.0]
    assert func.linearize(both, X)[1](X).tolist() == [5.0, 10.0]
    assert func.jacfwd(lambda x: func.vmap(both)(x))(X).tolist() == [[5.0, 0.0], [0.0, 5.0]]
