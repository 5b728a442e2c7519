"""Writes inside grad, vjp and jvp: captured tensors are left alone; what the function made itself,
or was given, may be written to, as in PyTorch (compared by tests/peers/test_captured_writes.py)."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import CaptureError
from disttrain.optim import SGD
from support.cases.captured_writes import ALLOWED, METHODS, TRANSFORMS, programs, run

PROGRAMS = programs()


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_tensors_are_not_written_to(name, transform):
    error = run(dt, transform, PROGRAMS[name])
    assert isinstance(error, CaptureError), error
    assert "captured tensor of shape" in str(error)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", ALLOWED)
def test_own_tensors_are(name, transform):
    result = run(dt, transform, ALLOWED[name])
    if transform == "vmap of grad" and isinstance(result, CaptureError):
        assert "from outside" in str(result)  # of the vmap: unbatched
        return
    assert isinstance(result, dt.Tensor), result


def test_all_methods_that_write_are_in_the_table():
    names = {n for n in dir(dt.Tensor) if n.endswith("_") and not n.endswith("__")}
    silent = {"requires_grad_", "share_memory_", "rename_"}
    assert len(names - silent - set(METHODS)) < len(names) / 2
    assert set(METHODS) <= names


def test_nothing_was_written_and_writes_outside_go_on():
    c = dt.zeros(3)
    with pytest.raises(CaptureError, match=r"add_: inside grad, a captured tensor of shape \[3\]"):
        func.grad(lambda x: (c.add_(1.0) * x).sum())(dt.ones(3))
    assert c.tolist() == [0, 0, 0]
    c.add_(1.0)
    assert c.tolist() == [1, 1, 1]


def test_arguments_are_the_functions_own():
    c = dt.zeros(3)
    func.grad(lambda x, given: (given.add_(1.0) * x).sum())(dt.ones(3), c)
    func.grad(lambda x, given=None: (given.add_(1.0) * x).sum())(dt.ones(3), given=c)
    assert c.tolist() == [2, 2, 2]


def test_values_of_an_outer_function_are_captured_by_an_inner_one():
    def outer(x):
        made = x * 2
        return func.grad(lambda y: (made.add_(1.0) * y).sum())(x).sum()

    with pytest.raises(CaptureError, match="captured"):
        func.grad(outer)(dt.ones(3))


def test_vmap_alone_lets_whole_tensors_be_written():
    c = dt.zeros(3)
    func.vmap(lambda x: (c.add_(1.0), x)[1])(dt.ones(2, 3))
    assert c.tolist() == [1, 1, 1]


def test_optimizers_do_not_step_captured_parameters():
    p = dt.nn.Parameter(dt.ones(3))
    p.grad = dt.ones(3)
    with pytest.raises(CaptureError, match=r"SGD\.step"):
        func.grad(lambda x: (SGD([p], lr=0.1).step(), (x * x).sum())[1])(dt.ones(3))


# --- tensors made inside jvp, written to with its values ------------------------------------------
def _buffer(x):
    b = dt.zeros(3, dtype=dt.float64)
    b[0] = x[0] * x[1]
    b[1] = b[0] * 2
    b[2:] = x[2:]
    return b * x


def _views(x):
    b = dt.zeros(2, 3, dtype=dt.float64)
    row, flat = b[1], b.view(-1)
    b[0] = x
    row.mul_(2).add_(x * x)
    return flat * dt.cat([x, x])


def _view_first(x):
    b = dt.ones(3, dtype=dt.float64)
    b[1:].mul_(x[0])
    return b * x


@pytest.mark.parametrize("f", [_buffer, _views, _view_first])
def test_buffers_made_inside_jvp_take_its_values(f):
    x = dt.tensor([0.5, 2.0, -1.5], dtype=dt.float64)
    assert dt.allclose(func.jacfwd(f)(x), func.jacrev(f)(x))

    def total(y):
        return (f(y) ** 3).sum()

    assert dt.allclose(func.hessian(total)(x), func.jacrev(func.jacrev(total))(x))


def test_an_alias_that_cannot_follow_is_refused():
    def f(x):
        b = dt.zeros(3)
        d = b.detach()
        b[0] = x[0]
        return b + d

    with pytest.raises(CaptureError, match="make the alias after the write"):
        func.jvp(f, (dt.ones(3),), (dt.ones(3),))
