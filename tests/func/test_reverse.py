"""Gradients as functions."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func import grad, grad_and_value, vjp

X, Y = dt.tensor([1.0, 2.0]), dt.tensor([3.0, -1.0])


def fn(x, y):
    return (x * x * y).sum()


def test_of_chosen_arguments():
    assert grad(fn)(X, Y).tolist() == (2 * X * Y).tolist()
    assert grad(fn, argnums=1)(X, Y).tolist() == (X * X).tolist()
    both = grad(fn, argnums=(0, 1))(X, Y)
    assert [g.tolist() for g in both] == [(2 * X * Y).tolist(), (X * X).tolist()]
    with pytest.raises((IndexError, ValueError, RuntimeError)):
        grad(fn, argnums=2)(X, Y)


def test_values_and_more_come_along():
    g, value = grad_and_value(fn)(X, Y)
    assert value.item() == fn(X, Y).item() and g.tolist() == (2 * X * Y).tolist()
    g, aux = grad(lambda x: (x.sum(), {"twice": x * 2}), has_aux=True)(X)
    assert g.tolist() == [1.0, 1.0] and aux["twice"].tolist() == [2.0, 4.0]


def test_trees_of_arguments():
    def of_tree(tree):
        return tree["a"][0].sum() * tree["b"]

    found = grad(of_tree)({"a": [X], "b": dt.tensor(2.0)})
    assert found["a"][0].tolist() == [2.0, 2.0] and found["b"].item() == 3


def test_pulling_back():
    out, pull = vjp(lambda x: (x * x, x.sum()), X)
    assert [o.tolist() for o in out] == [[1.0, 4.0], 3.0]
    (found,) = pull((dt.tensor([1.0, 10.0]), dt.tensor(100.0)))
    assert found.tolist() == [102.0, 140.0]


def test_of_gradients():
    assert grad(lambda x: grad(lambda z: (z**3).sum())(x).sum())(X).tolist() == (6 * X).tolist()


def test_results_that_are_no_number_are_refused():
    with pytest.raises((ValueError, RuntimeError), match=r"scalar|shape"):
        grad(lambda x: x * 2)(X)


@pytest.mark.parametrize(
    ("argnums", "match"),
    [
        (2, "only 2 positional inputs"),
        (-3, "only 2 positional inputs"),
        ((), "must be non-empty"),
        ([0], "int or Tuple"),
        (("0",), "must be int"),
        ((0, -2), "must be unique"),
    ],
)
def test_numbers_of_arguments_are_checked(argnums, match):
    with pytest.raises(RuntimeError, match=match):
        grad(dt.mul, argnums=argnums)(dt.tensor(1.0), dt.tensor(2.0))


@pytest.mark.parametrize("wrong", [lambda t: [t, t], lambda t: (t, t, t)])
def test_aux_comes_in_a_pair(wrong):
    for run in (lambda: grad(wrong, has_aux=True)(dt.tensor(1.0)),
                lambda: vjp(wrong, dt.tensor(1.0), has_aux=True)):  # fmt: skip
        with pytest.raises(RuntimeError, match="output of function f should be a tuple"):
            run()
    with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type"):
        grad(lambda t: (t, 1), has_aux=True)(dt.tensor(1.0))


def test_cotangents_have_the_form_of_the_results():
    _, pull = vjp(lambda x: (x, [x * 2]), dt.tensor(1.0))
    one = dt.tensor(1.0)
    assert pull((one, [one]))[0].item() == 3.0
    with pytest.raises(RuntimeError, match="Expected pytree structure"):
        pull((one, one))
