"""Dropout: its mean, whole channels, evaluation."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain.errors import ShapeError

F = nn.functional


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    x = core.wrap(np.ones((200, 100), np.float32))
    drop = nn.Dropout(0.25)
    y = drop(x).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert y.mean() == pytest.approx(1.0, abs=0.03)
    assert drop.eval()(x) is x
    assert F.dropout(x, 1.0).numpy().sum() == 0
    rows = nn.Dropout2d(0.5)(core.wrap(np.ones((50, 20, 3, 3), np.float32))).numpy()
    per_channel = rows.reshape(1000, 9)
    assert ((per_channel == per_channel[:, :1]).all(1)).all()
    selu = nn.AlphaDropout(0.2)(randn(300, 300)).numpy()
    assert selu.mean() == pytest.approx(0.0, abs=0.03) and selu.std() == pytest.approx(1, abs=0.03)


def test_feature_alpha_dropout_keeps_or_saturates_whole_channels():
    x = dt.randn(50, 40, 6)
    y = nn.FeatureAlphaDropout(0.3)(x)
    same = (y == y[..., :1]).all(-1)
    assert 0.25 < same.float().mean().item() < 0.35
    kept = ~same
    factor = (y[kept] - y[kept][:, :1]) / (x[kept] - x[kept][:, :1]).masked_fill(
        x[kept] == x[kept][:, :1], 1.0
    )
    assert factor[:, 1:].std().item() < 1e-2
    assert abs(y.mean().item()) < 0.1 and abs(y.std().item() - 1) < 0.1
    assert nn.FeatureAlphaDropout(0.3).eval()(x) is x
    with pytest.raises(ShapeError, match="at least 2"):
        F.feature_alpha_dropout(dt.ones(3), training=True)
