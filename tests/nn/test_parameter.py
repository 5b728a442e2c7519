"""Parameters and buffers: whose memory they share, and those that have no shape yet."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.core.types import dtypes
from disttrain.errors import (
    AutogradError,
    DTypeError,
    ShapeError,
    UninitializedError,
)
from disttrain.nn.parameter import (
    UninitializedBuffer,
    UninitializedParameter,
    empty,
    is_lazy,
    replace_data,
)


def tensor(*shape, value=1.0):
    return core.wrap(np.full(shape, value, np.float32))


class Scale(nn.Module):
    """One parameter, one buffer, one buffer that is not saved."""

    def __init__(self, value=2.0):
        super().__init__()
        self.weight = nn.Parameter(tensor(3, value=value))
        self.register_buffer("seen", tensor(1, value=0.0))
        self.register_buffer("scratch", tensor(2), persistent=False)

    def forward(self, x, shift=0.0):
        return x * self.weight + shift


def test_parameter_is_a_leaf_that_requires_grad_and_shares_memory():
    data = tensor(3)
    p = nn.Parameter(data)
    assert p.requires_grad and p.is_leaf and isinstance(p, core.Tensor)
    assert p.detach().numpy() is not None
    assert np.shares_memory(p.detach().numpy(), data.numpy())
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter containing:\n")
    with pytest.raises(TypeError, match="a Tensor is needed"):
        nn.Parameter([1.0])
    with pytest.raises(DTypeError):
        nn.Parameter(core.wrap(np.arange(3)))


def test_data_assignment_may_change_the_shape_for_later_gradients():
    m = Scale()
    nn.parameter.replace_data(m.weight, tensor(5))
    m(tensor(5)).sum().backward()
    assert tuple(m.weight.grad.shape) == (5,)


def test_writes_through_one_name_are_seen_by_the_other():
    data = tensor(3)
    p = nn.Parameter(data)
    loss = (p * p).sum()
    data.add_(1.0)
    assert p.tolist() == [2.0] * 3
    with pytest.raises(AutogradError):  # what backward needs has changed under it
        loss.backward()


def test_without_data_there_are_no_elements():
    assert nn.Parameter().shape == (0,) and nn.Buffer().shape == (0,)
    assert nn.Buffer(tensor(2)).persistent and not nn.Buffer(tensor(2), persistent=False).persistent
    assert not nn.Buffer(tensor(2)).requires_grad
    with pytest.raises(TypeError, match=r"Buffer: list given; .* nn\.Buffer\(dt\.tensor"):
        nn.Buffer([1.0])


def test_a_parameter_of_a_result_is_no_part_of_its_graph():
    x = tensor(2).requires_grad_()
    p = nn.Parameter(x * 2)
    p.sum().backward()
    assert p.is_leaf and x.grad is None and p.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", [UninitializedParameter, UninitializedBuffer])
def test_what_has_no_shape_says_so_until_it_gets_one(kind):
    p = kind(dtype=dtypes.float64)
    assert is_lazy(p) and repr(p) == f"<{kind.__name__}>"
    for ask in (lambda: p.shape, lambda: p.ndim):
        with pytest.raises(UninitializedError, match="run one batch through the module"):
            ask()
    copied = copy.deepcopy(p)
    p.materialize((2, 3))
    assert not is_lazy(p) and is_lazy(copied) and copied.dtype is dtypes.float64
    assert p.shape == (2, 3) and p.dtype is dtypes.float64
    assert type(p) is (nn.Parameter if kind is UninitializedParameter else nn.Buffer)
    assert p.requires_grad == (kind is UninitializedParameter)
    copied.materialize(4, dtype=dtypes.float32)
    assert copied.shape == (4,) and copied.dtype is dtypes.float32


def test_a_frozen_one_without_a_shape_stays_frozen():
    p = UninitializedParameter(requires_grad=False, device="meta")
    copied = copy.deepcopy(p)
    for each in (p, copied):
        each.materialize((2,))
        assert not each.requires_grad and each.is_meta
    p = UninitializedBuffer(persistent=False)
    assert not copy.deepcopy(p).persistent


def test_new_memory_has_the_type_and_place_that_were_asked_for():
    assert empty((2, 3)).dtype is dtypes.float32 and empty((), "float64").dtype is dtypes.float64
    assert empty((2,), device="meta").is_meta
    with pytest.raises(ShapeError, match=r"shape \[2, -1\] given; sizes cannot be negative"):
        empty((2, -1))


def test_new_data_keeps_hooks_and_identity():
    p, seen = nn.Parameter(tensor(3)), []
    p.register_hook(lambda g: seen.append(g.shape))
    replace_data(p, p.detach())  # the same memory: nothing happens
    value = tensor(2, 2).double()
    replace_data(p, value)
    assert np.shares_memory(p.detach().numpy(), value.numpy())
    p.sum().backward()
    assert seen == [(2, 2)] and p.grad.dtype is dtypes.float64
