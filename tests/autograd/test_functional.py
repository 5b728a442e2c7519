"""dt.autograd.functional, checked against answers written by hand."""

import pytest

import disttrain as dt
from disttrain.autograd import functional as F
from disttrain.autograd import grad
from disttrain.errors import AutogradError

X, Y = dt.tensor([1.0, 2.0]), dt.tensor([3.0, 4.0])
FORMS = [{}, {"vectorize": True}]
JACOBIANS = [*FORMS, {"vectorize": True, "strategy": "forward-mode"}]
HESSIANS = [*FORMS, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}]


def pair(a, b):
    return a * b, (a + b).sum()


def cubes(a):
    return (a**3).sum()


def form(a, b):
    return (a * a * b).sum()


def plain(value):
    return tuple(plain(v) for v in value) if isinstance(value, tuple) else value.tolist()


def test_vjp():
    out, rows = F.vjp(pair, (X, Y), (dt.ones(2), dt.tensor(2.0)))
    assert plain(out) == ([3.0, 8.0], 10.0) and plain(rows) == ([5.0, 6.0], [3.0, 4.0])
    assert plain(F.vjp(cubes, X)) == (9.0, [3.0, 12.0])


def test_jvp():
    out, moved = F.jvp(pair, (X, Y), (X, Y))
    assert plain(out) == ([3.0, 8.0], 10.0) and plain(moved) == ([6.0, 16.0], 10.0)
    assert plain(F.jvp(lambda a: a * a, X, Y)) == ([1.0, 4.0], [6.0, 16.0])
    assert plain(F.jvp(lambda a: a * 0 + 1, X[:1]))[1] == [0.0]


@pytest.mark.parametrize("how", JACOBIANS)
def test_jacobian(how):
    assert plain(F.jacobian(pair, (X, Y), **how)) == (
        ([[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]), ([1.0, 1.0], [1.0, 1.0]),
    )  # fmt: skip
    assert plain(F.jacobian(lambda a: a * a, X, **how)) == [[2.0, 0.0], [0.0, 4.0]]
    assert plain(F.jacobian(lambda a: (a * a, a.sum()), X, **how))[1] == [1.0, 1.0]
    assert plain(F.jacobian(lambda a: dt.ones(2), X, **how)) == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("how", HESSIANS)
def test_hessian(how):
    assert plain(F.hessian(form, (X, Y), **how)) == (
        ([[6.0, 0.0], [0.0, 8.0]], [[2.0, 0.0], [0.0, 4.0]]),
        ([[2.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]),
    )
    assert plain(F.hessian(cubes, X, **how)) == [[6.0, 0.0], [0.0, 12.0]]


@pytest.mark.parametrize("product", [F.vhp, F.hvp])
def test_products_with_the_hessian(product):
    out, moved = product(form, (X, Y), (X, Y))
    assert out.item() == 19.0 and plain(moved) == ([12.0, 32.0], [2.0, 8.0])
    assert plain(product(cubes, X, Y)) == (9.0, [18.0, 48.0])


def test_answers_can_be_differentiated_when_asked():
    x = X.clone().requires_grad_()
    assert not F.jacobian(lambda a: a**3, x).requires_grad
    for how in FORMS:
        matrix = F.jacobian(lambda a: a**3, x, create_graph=True, **how)
        assert plain(grad(matrix.sum(), x)) == ([6.0, 12.0],)
        matrix = F.hessian(cubes, x, create_graph=True, **how)
        assert plain(grad(matrix.sum(), x)) == ([6.0, 6.0],)
    _, row = F.vjp(cubes, x, create_graph=True)
    assert plain(grad(row.sum(), x)) == ([6.0, 12.0],)
    _, moved = F.jvp(lambda a: a**3, x, Y, create_graph=True)
    assert plain(grad(moved.sum(), x)) == ([18.0, 48.0],)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [(lambda: F.vjp(lambda a: 3, X), TypeError, "must be either a Tensor"),
     (lambda: F.vjp(cubes, 3.0), TypeError, "inputs given to vjp"),
     (lambda: F.vjp(lambda a: a, X), AutogradError, "can only be None"),
     (lambda: F.vjp(lambda a: a, X, dt.ones(3)), RuntimeError, "invalid size"),
     (lambda: F.vjp(lambda a: a, X, (X, X)), AutogradError, "invalid length"),
     (lambda: F.vhp(lambda a: a, X, X), AutogradError, "single element"),
     (lambda: F.jacobian(lambda a: dt.ones(2), X, strict=True), AutogradError, "does not require"),
     (lambda: F.jacobian(lambda a, b: a, (X, Y), strict=True), AutogradError, "independent"),
     (lambda: F.jacobian(lambda a: a * 2, X, strict=True, create_graph=True), AutogradError,
      "create_graph=True"),
     (lambda: F.jacobian(cubes, X, strict=True, vectorize=True), AutogradError, "together"),
     (lambda: F.jacobian(cubes, X, strategy="sideways"), AutogradError, "strategy"),
     (lambda: F.jacobian(cubes, X, strict=True, strategy="forward-mode"), AutogradError, "strict"),
     (lambda: F.jacobian(cubes, X, strategy="forward-mode"), NotImplementedError, "vectorize")],
)  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
