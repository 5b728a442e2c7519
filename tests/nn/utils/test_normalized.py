"""Norms of weights in their older form."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn


def same(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=tolerance)


def test_older_weight_norm():
    m = nn.Linear(3, 2)
    start = m.weight.detach().clone()
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(m)
    assert sorted(dict(m.named_parameters())) == ["bias", "weight_g", "weight_v"]
    with dt.no_grad():
        m.weight_g.mul_(2)
    same(m(dt.ones(3)), (2 * start).sum(1) + m.bias)
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="two weight_norm hooks"):
        nn.utils.weight_norm(m)
    nn.utils.remove_weight_norm(m)
    same(m.weight, 2 * start)
    assert isinstance(m.weight, nn.Parameter) and "weight_g" not in dict(m.named_parameters())
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(m)
