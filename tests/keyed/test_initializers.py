"""Weights drawn with keys: types, spreads, wrong shapes."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import keyed
from disttrain.errors import ConfigError
from disttrain.keyed import initializers as init

KEY = keyed.seed(0)
DEVIATIONS = {
    "uniform": (init.uniform(2.0), 2 / 12**0.5), "normal": (init.normal(0.5), 0.5),
    "lecun_normal": (init.lecun_normal(), 200**-0.5), "he_uniform": (init.he_uniform(), 0.1),
    "glorot_normal": (init.glorot_normal(), (2 / 400) ** 0.5), "constant": (init.constant(3), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVIATIONS)
def test_spread(name):
    make, deviation = DEVIATIONS[name]
    drawn = make(KEY, (200, 200), np.float32)
    assert drawn.meta()[1] == np.float32
    assert drawn.numpy().std() == pytest.approx(deviation, rel=0.02, abs=1e-6)


def test_types():
    assert init.normal(1.0, np.float64)(KEY, (2,)).meta()[1] == np.float64
    assert init.constant(1)(None, (2,)).meta()[1] == np.float32
    with pytest.raises(ConfigError, match="floating"):
        init.uniform()(KEY, (2,), np.int32)


def test_orthogonal():
    q = init.orthogonal()(KEY, (6, 3)).numpy()
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-5)
    kernel = init.delta_orthogonal()(KEY, (3, 4, 2, 5)).numpy()
    assert kernel.any(axis=(2, 3)).sum() == 1 and kernel[1, 1].any()


def test_wrong_shapes():
    for make, shape in ((init.glorot_normal(), (3,)), (init.orthogonal(), (3,)),
                        (init.delta_orthogonal(), (3, 3, 4, 2))):  # fmt: skip
        with pytest.raises(ConfigError):
            make(KEY, shape)
