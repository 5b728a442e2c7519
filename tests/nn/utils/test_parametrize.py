"""Parametrizations: tensors of a module computed from others."""

import copy
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-2, -1)

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    seen = 0

    def forward(self, x):
        self.seen += 1
        return 2 * x


class Product(nn.Module):
    def forward(self, a, b):
        return a * b

    def right_inverse(self, x):
        return x.clone(), dt.ones_like(x)


def same(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=tolerance)


def test_a_weight_is_computed_from_its_original():
    m = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    assert parametrize.is_parametrized(m, "weight") and not parametrize.is_parametrized(m, "bias")
    assert [n for n, _ in m.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert isinstance(m, nn.Linear) and type(m).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(m) is nn.Linear
    same(m.weight, m.weight.T)
    m(dt.ones(2, 3)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None


def test_assignment_goes_through_the_inverse():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    held = m.parametrizations.weight.original
    m.weight = dt.tensor([[1.0, 2.0], [2.0, 3.0]])
    assert m.parametrizations.weight.original is held
    assert held.tolist() == [[1.0, 2.0], [0.0, 3.0]]
    parametrize.register_parametrization(m, "bias", Scaled())
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        m.bias = dt.zeros(2)


def test_parametrizations_stack_and_come_off_again():
    m = nn.Linear(3, 3)
    before = m.weight
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Scaled())
    value = m.weight
    same(value, 2 * Symmetric()(before))
    parametrize.remove_parametrizations(m, "weight")
    same(m.weight, value)
    assert type(m) is nn.Linear and m.weight is before and not hasattr(m, "parametrizations")
    parametrize.register_parametrization(m, "weight", Scaled())
    parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    same(m.weight, value)


def test_several_originals():
    m = nn.Linear(2, 2)
    start = m.weight.clone()
    parametrize.register_parametrization(m, "weight", Product())
    assert set(dict(m.parametrizations.named_parameters())) == {
        "weight.original0", "weight.original1"
    }  # fmt: skip
    same(m.weight, start)
    m.weight = 3 * start
    same(m.parametrizations.weight.original0, 3 * start)
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(m, "weight")
    assert isinstance(m.weight, nn.Parameter)


def test_buffers_too():
    m = nn.BatchNorm1d(2)
    parametrize.register_parametrization(m, "running_var", Scaled())
    assert m.running_var.tolist() == [2.0, 2.0]
    parametrize.remove_parametrizations(m, "running_var")
    assert m._buffers["running_var"].tolist() == [2.0, 2.0]


def test_within_cached_a_tensor_is_computed_once():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    counter = m.parametrizations.weight[0]
    before = counter.seen
    with parametrize.cached():
        assert m.weight is m.weight
    assert counter.seen == before + 1
    assert m.weight is not m.weight


def test_copies_have_tensors_and_properties_of_their_own():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    twin = copy.deepcopy(m)
    same(twin.weight, m.weight)
    parametrize.remove_parametrizations(twin, "weight")
    assert type(twin) is nn.Linear and parametrize.is_parametrized(m, "weight")
    same(twin.weight, m.weight)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(m)


def test_the_state_dict_has_the_originals():
    first, second = (
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled()) for _ in range(2)
    )
    second.load_state_dict(first.state_dict())
    same(first.weight, second.weight)


def test_transfer():
    source = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    target = parametrize.transfer_parametrizations_and_params(source, nn.Linear(2, 2))
    assert target.parametrizations.weight.original is source.parametrizations.weight.original
    same(target.weight, source.weight)


class Wrong(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, x):
        return self.out(x)


@pytest.mark.parametrize("on_top", [False, True])
@pytest.mark.parametrize(
    "out, text",
    [
        (lambda x: 3, "must return a tensor. Got int"),
        (lambda x: x[:1], "may not change the shape"),
        (lambda x: x.double(), "may not change the dtype"),
    ],
)
def test_type_and_shape_stay_unless_told(out, text, on_top):
    m = nn.Linear(2, 2)
    if on_top:
        parametrize.register_parametrization(m, "weight", Scaled())
    with pytest.raises(ValueError, match=text):
        parametrize.register_parametrization(m, "weight", Wrong(out))
    assert parametrize.is_parametrized(m) == on_top


def test_mistakes_are_named():
    m = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
        parametrize.register_parametrization(m, "nothing", Scaled())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(m, "weight")


# --- orthogonal ----------------------------------------------------------------------------------


# --- weight and spectral normalisation -----------------------------------------------------------
