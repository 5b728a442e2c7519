"""Operators and methods of Tensor: operands of all kinds, numbers, conversions."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.tensor import Tensor
from disttrain.errors import AutogradError, ShapeError
from disttrain.ops import api, methods

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
              operator.floordiv, operator.mod]  # fmt: skip
COMPARING = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("op", ARITHMETIC + COMPARING, ids=lambda op: op.__name__)
@pytest.mark.parametrize("other", [2.5, 3, np.float64(2.5), np.array([2.0, 3.0, 0.5]), "tensor"],
                         ids=["float", "int", "scalar", "array", "tensor"])  # fmt: skip
def test_operands_on_both_sides(op, other):
    a = np.array([1.5, 2.5, 4.0])
    x = dt.tensor(a)
    b = np.array([2.0, 2.5, 3.0]) if isinstance(other, str) else other
    y = dt.tensor(b) if isinstance(other, str) else other
    np.testing.assert_allclose(op(x, y).numpy(), op(a, b))
    if not isinstance(other, (np.ndarray, np.generic)):  # numpy's own come first on the left
        np.testing.assert_allclose(op(y, x).numpy(), op(b, a))
        assert type(op(y, x)) is Tensor


@pytest.mark.parametrize("op", BITS, ids=lambda op: op.__name__)
def test_bits(op):
    a, b = np.array([5, 6, 1]), np.array([1, 2, 3])
    x, y = dt.tensor(a), dt.tensor(b)
    assert op(x, y).tolist() == op(a, b).tolist()
    assert op(x, 2).tolist() == op(a, 2).tolist() and op(2, x).tolist() == op(2, a).tolist()
    assert (~x).tolist() == (~a).tolist()


def test_other_objects_have_their_say():
    class Other:
        def __radd__(self, left):
            return "radd"

        def __rlshift__(self, left):
            return "rlshift"

        def __lt__(self, right):
            return "lt"

    x = dt.ones(2)
    assert x << Other() == "rlshift" and (x > Other()) == "lt"
    assert (x == "text") is False and (x != None) is True  # noqa: E711
    for wrong in ("a", [1, 2]):
        with pytest.raises(TypeError):
            wrong * x
        with pytest.raises(TypeError):
            wrong + x
    with pytest.raises(TypeError):
        x & "a"


def test_a_number_of_one_element():
    one = dt.tensor([[7]])
    assert (int(one), float(one), complex(one), one.item(), bool(one)) == (7, 7.0, 7 + 0j, 7, True)
    assert [0, 1, 2, 3][dt.tensor(2)] == 2 and list(range(5))[dt.tensor(True) :] == [1, 2, 3, 4]
    assert isinstance(dt.tensor(1.5, dtype=dt.bfloat16).item(), float)
    assert dt.tensor([1.5], dtype=dt.bfloat16).tolist() == [1.5]
    with pytest.raises(
        ShapeError, match=r"item: a tensor of shape \[2\] has 2 elements; exactly one"
    ):
        dt.ones(2).item()
    with pytest.raises(ShapeError, match=r"truth of a tensor of shape \[0\] is ambiguous"):
        bool(dt.ones(0))
    with pytest.raises(TypeError, match="only integer tensors can be an index"):
        operator.index(dt.tensor(1.0))


def test_lengths_and_members():
    assert len(dt.ones(3, 2)) == 3 and 2 in dt.arange(3) and 5 not in dt.arange(3)
    with pytest.raises(TypeError, match="0-d tensor"):
        len(dt.tensor(1))
    assert dt.ones(2, 3).size() == (2, 3) and dt.ones(2, 3).size(-1) == 3
    with pytest.raises(IndexError):
        dt.ones(2).size(1)


def test_texts():
    assert f"{dt.tensor(1.25):.1f}" == "1.2" and f"{dt.tensor(3):03d}" == "003"
    assert f"{dt.ones(2)}" == str(dt.ones(2))
    assert f"{dt.empty((), device='meta')}".startswith("tensor(")


def test_arrays_of_numpy():
    x = dt.arange(3.0)
    assert np.shares_memory(np.asarray(x), x.numpy()) and np.asarray(x, "f8").dtype == "f8"
    assert not np.shares_memory(np.array(x, copy=True), x.numpy())
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(("name", "kind"), methods._CASTS.items())
def test_casts(name, kind):
    x = dt.tensor([0, 1])
    found = getattr(x, name)()
    assert found.dtype.name == kind and [int(v.real) for v in found.tolist()] == [0, 1]
    assert getattr(found, name)() is found


def test_types_by_their_older_names():
    x = dt.ones(2)
    assert x.type().endswith("FloatTensor") and x.long().type().endswith("LongTensor")
    assert x.type("torch.DoubleTensor").dtype is dt.float64 and x.type(dt.int8).dtype is dt.int8
    assert x.type("HalfTensor").dtype is dt.float16 and x.type_as(x.double()).dtype is dt.float64
    assert x.type("float64").dtype is dt.float64


def test_tensors_beside_another_one():
    x = dt.ones(2, dtype=dt.float64)
    assert x.new_zeros(2, 3).dtype is dt.float64 and x.new_ones((2,)).tolist() == [1.0, 1.0]
    assert x.new_full((2,), 3).tolist() == [3.0, 3.0] and x.new_tensor([1, 2]).dtype is dt.float64
    assert x.new_zeros(1, dtype=dt.int8).dtype is dt.int8 and x.new_empty(4).shape == (4,)
    assert x.new(2, 2).shape == (2, 2) and x.new([1.0]).dtype is dt.float64


def test_older_constructors():
    assert dt.Tensor(2, 3).shape == (2, 3) and dt.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert dt.Tensor().shape == (0,)


def test_transposes_and_parts():
    x = dt.arange(24.0).reshape(2, 3, 4)
    assert x.T.shape == (4, 3, 2) and x.mT.shape == (2, 4, 3) and x[0].H.shape == (4, 3)
    z = dt.tensor([1 + 2j, 3 - 1j])
    z.real, z.imag = 5.0, dt.tensor([6.0, 7.0])
    assert z.tolist() == [5 + 6j, 5 + 7j]
    assert z[None].mH.tolist() == [[5 - 6j], [5 - 7j]]


def test_a_tensor_can_be_cut_off_its_graph_unless_it_is_a_view():
    x = dt.ones(3, requires_grad=True)
    y = x * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    with pytest.raises(AutogradError, match="can't detach views in-place"):
        y = x * 2
        y[1:].detach_()


def test_methods_are_the_functions_of_their_names():
    for name in (*methods._MATH.split(), *methods._OTHERS.split(), *methods._ALIASES.split()):
        method, function = getattr(Tensor, name), getattr(api, name)
        assert method is function or method is function.__wrapped__, name
    x = dt.tensor([1.0, -1.0])
    assert x.where(x > 0, 0.0).tolist() == [1.0, 0.0]
    assert x.index_put((dt.tensor([0]),), dt.tensor([5.0])).tolist() == [5.0, -1.0]
    assert (x.numel(), x.nelement(), x.dim(), x.ndimension(), x.element_size()) == (2, 2, 1, 1, 4)


def test_values_of_transforms_have_a_text():
    seen = []
    dt.func.vmap(lambda x: seen.append(f"{x} {x.sum()}") or x)(dt.ones(3))
    assert len(seen) == 1 and seen[0]
