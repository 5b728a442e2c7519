"""Linear modules: shapes, first values, and errors."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import DisttrainError


def test_weights_begin_within_their_bound():
    module = nn.Linear(100, 50)
    bound = 1 / math.sqrt(100)
    assert module.weight.abs().max() <= bound and module.bias.abs().max() <= bound
    assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert repr(module) == "Linear(in_features=100, out_features=50, bias=True)"


def test_without_bias_in_another_type_elsewhere():
    module = nn.Linear(3, 2, bias=False, dtype=dt.float64)
    assert module.bias is None and module(dt.ones(3, dtype=dt.float64)).dtype is dt.float64
    assert nn.Linear(3, 2, device="meta").weight.is_meta


def test_an_input_of_another_width_is_refused_with_both_widths():
    with pytest.raises((DisttrainError, ValueError, RuntimeError), match=r"4.*3|3.*4"):
        nn.Linear(3, 2)(dt.ones(5, 4))


def test_identity_and_bilinear():
    x, y = dt.randn(5, 3), dt.randn(5, 4)
    assert nn.Identity(1, 2, unused=True)(x) is x
    module = nn.Bilinear(3, 4, 2)
    wanted = dt.einsum("bi,kij,bj->bk", x, module.weight, y) + module.bias
    assert dt.allclose(module(x, y), wanted, atol=1e-6)


def test_lazy_modules_take_their_width_from_the_first_input():
    module = nn.LazyLinear(4)
    assert module(dt.ones(2, 7)).shape == (2, 4)
    assert type(module) is nn.Linear and module.in_features == 7
