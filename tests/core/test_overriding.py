"""Operands that are no Tensors and bring a meaning of their own."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.core.overriding import overridden


class Held:
    """A variable that holds a tensor, as other libraries have them."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert set(types) == {cls}
        told = lambda a: a.value if isinstance(a, Held) else a
        return func(*map(told, args), **{k: told(v) for k, v in (kwargs or {}).items()})


class Unwilling:
    __torch_function__ = classmethod(lambda cls, *args: NotImplemented)


X, HELD = dt.tensor([[1.0, 2.0]]), Held(dt.tensor([[3.0, 4.0]]))
CALLS = {
    "add": (lambda v: X + v), "sub": (lambda v: X - v), "mul": (lambda v: X * v),
    "div": (lambda v: X / v), "pow": (lambda v: X**v), "matmul": (lambda v: X.T @ v),
    "exp": dt.exp, "softmax": (lambda v: dt.softmax(v, dim=1)), "sum": (lambda v: dt.sum(v, 1)),
    "mean": dt.mean, "where": (lambda v: dt.where(X > 1, X, v)),
    "linear": (lambda v: dt.nn.functional.linear(X, v)), "maximum": (lambda v: dt.maximum(X, v)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_they_hold_is_computed_with(name):
    assert dt.equal(CALLS[name](HELD), CALLS[name](HELD.value))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("other", [object(), Unwilling()])
def test_others_are_refused_as_ever(name, other):
    with pytest.raises(TypeError):
        CALLS[name](other)


def test_gradients_pass():
    x = X.clone().requires_grad_()
    (x * HELD).sum().backward()
    assert dt.equal(x.grad, HELD.value)


def test_nobody_is_asked_without_need():
    assert overridden(dt.add, (X, 1.0), {}) is NotImplemented
