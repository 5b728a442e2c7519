"""In-place methods: the result is written back; types, views, shapes, what is refused."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.tensor import Tensor
from disttrain.errors import AutogradError
from disttrain.ops import inplace_methods

ONE = """acos asin atan ceil cos erf exp exp2 expm1 fix floor frac i0 log1p neg reciprocal round
rsqrt sigmoid sign sin sinc sqrt square tan tanh trunc deg2rad lgamma""".split()
TWO = "add sub mul div fmod remainder floor_divide atan2 copysign hypot xlogy float_power".split()


@pytest.mark.parametrize("name", ONE + TWO)
def test_the_result_is_written_back(name):
    x, y = dt.tensor([0.25, 0.5, 0.75], dtype=dt.float64), dt.tensor([0.5, 2.0, 3.0])
    args = (y.double(),) if name in TWO else ()
    want = getattr(x, name)(*args)
    view, place = x[1:], x.data_ptr()
    out = getattr(x, f"{name}_")(*args)
    assert out is x and x.data_ptr() == place
    np.testing.assert_allclose(x.numpy(), want.numpy(), rtol=1e-15)
    assert view.tolist() == x.tolist()[1:]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", [*ONE, "exp", "log", "abs", "add", "sub", "mul", "div"])
def test_the_bits_are_those_of_the_function_and_of_a_replay(name, kind):
    a = np.abs(np.random.default_rng(0).standard_normal(257).astype(kind))
    args = (0.7,) if name in ("add", "sub", "mul", "div") else ()
    want = getattr(dt.tensor(a), name)(*args).numpy().tobytes()

    def step(x):
        return getattr(x * 1, f"{name}_")(*args)

    compiled = dt.compile(step)
    for f in (step, compiled, compiled):
        assert f(dt.tensor(a)).numpy().tobytes() == want


def test_every_method_of_the_table_is_there_with_a_name():
    for name in inplace_methods._SAME.split():
        method = getattr(Tensor, f"{name}_")
        assert callable(method) and method.__name__ == f"{name}_", name
    for name in inplace_methods._SHAPED:
        assert inspect.getdoc(getattr(Tensor, f"{name}_")).startswith(f"``{name}``, of this tensor")


def test_operators_write_in_place():
    x = dt.tensor([7, 8, 9])
    kept = x
    x += 1
    x -= 2
    x *= 3
    x //= 2
    x %= 7
    x |= 8
    x &= 13
    x ^= 1
    x <<= 2
    x >>= 1
    x **= 2
    a = np.array([7, 8, 9])
    a = ((((a + 1 - 2) * 3 // 2 % 7 | 8) & 13 ^ 1) << 2 >> 1) ** 2
    assert x is kept and x.tolist() == a.tolist()
    y = dt.ones(2)
    y /= 4
    assert y.tolist() == [0.25, 0.25]


def test_the_type_stays_or_the_write_is_refused():
    x = dt.ones(2, dtype=dt.float16)
    assert x.mul_(2.5).dtype is dt.float16
    with pytest.raises(RuntimeError):
        dt.ones(2, dtype=dt.int64).div_(2)
    with pytest.raises(RuntimeError):
        dt.ones(2).add_(1j)
    with pytest.raises(TypeError):
        dt.ones(2, dtype=dt.complex64).abs_()
    with pytest.raises(RuntimeError):
        dt.ones(1).add_(dt.ones(3))


def test_python_functions_of_elements():
    x, y = dt.tensor([1.0, 2.0, 3.0]), dt.tensor([[10.0], [20.0]])
    z = x.expand(2, 3).contiguous()
    assert z.map_(y, lambda a, b: a + b) is z and z.tolist() == [[11, 12, 13], [21, 22, 23]]
    assert z.map2_(x, y, lambda a, b, c: a - b - c).abs().sum().item() == 0
    assert x.apply_(lambda v: v * v).tolist() == [1.0, 4.0, 9.0]
    assert dt.tensor([1, 2]).apply_(lambda v: v + 0.9).tolist() == [1, 2]  # in the tensor's type


def test_a_tensor_becomes_a_view_of_what_it_was():
    x = dt.arange(6.0).reshape(2, 3)
    whole = x[:]
    assert x.t_() is x and x.shape == (3, 2) and x.tolist() == [[0, 3], [1, 4], [2, 5]]
    whole[0, 1] = 9.0
    assert x[1, 0].item() == 9.0
    assert x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_(0).shape == (3, 2)
    assert x.transpose_(0, 1).tolist() == whole.tolist()
    assert x.as_strided_((2,), (3,)).tolist() == [0.0, 3.0]
    assert dt.ones(2, 2).resize_as_(dt.ones(3)).shape == (3,)


def test_gradients_go_through_and_old_shapes_are_not_read():
    x = dt.arange(6.0, requires_grad=True)
    y = (x * 1).reshape(2, 3) * 1
    y.t_()
    (y * dt.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 1, 3, 5]
    a = dt.ones(2, 3, requires_grad=True)
    b = a * 2
    c = b * b
    b.t_()
    with pytest.raises(AutogradError):
        c.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        dt.ones(2, 2, requires_grad=True).t_()


def test_names_that_are_others_behave_alike():
    for one, two in (("mul_", "multiply_"), ("div_", "true_divide_"), ("sub_", "subtract_")):
        x, y = dt.full((2,), 6.0), dt.full((2,), 6.0)
        assert getattr(x, one)(3.0).tolist() == getattr(y, two)(3.0).tolist()
    assert dt.full((2,), 7.0).div_(2, rounding_mode="floor").tolist() == [3.0, 3.0]
    assert dt.zeros(3).index_put_((dt.tensor([1, 1]),), dt.ones(2), True).tolist() == [0, 2, 0]
    assert dt.zeros(2, 3).fill_diagonal_(5.0).tolist() == [[5, 0, 0], [0, 5, 0]]
    assert dt.tensor([0.5]).polygamma_(1).item() == pytest.approx(4.934802)
