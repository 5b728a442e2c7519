"""Layers as pairs of functions, on tensors: the shapes that are said are those that come."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import keyed
from disttrain.errors import ConfigError
from disttrain.keyed.layers import NATIVE, Layers

KEY, of = keyed.seed(0), Layers(NATIVE)
LAYERS = {
    "conv": (of.conv(4, (3, 3), strides=(2, 2), padding="SAME"), (2, 8, 8, 3)),
    "transposed": (of.conv_transpose(4, (3, 3), strides=(2, 2)), (2, 8, 8, 3)),
    "batch norm": (of.batch_norm(), (2, 8, 8, 3)),
    "max": (of.max_pool((2, 2), (2, 2)), (2, 8, 8, 3)),
    "average": (of.avg_pool((3, 3), padding="SAME"), (2, 8, 8, 3)),
    "many": (of.serial(of.flatten, of.dense(5), of.elementwise(dt.tanh)), (2, 8, 8, 3)),
    "joined": (
        of.serial(of.fan_out(2), of.parallel(of.dense(2), of.identity), of.fan_in_concat()), (4, 3)
    ),
    "summed": (
        of.serial(of.fan_out(2), of.parallel(of.dense(3), of.identity), of.fan_in_sum), (4, 3)
    ),
    "by shape": (of.shape_dependent(lambda shape: of.dense(shape[-1])), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_shapes(name):
    (init, apply), shape = LAYERS[name]
    out, params = init(KEY, shape)
    found = apply(params, keyed.normal(KEY, shape, np.dtype("float32")), rng=KEY)
    assert tuple(found.shape) == tuple(out)


def test_unknown_batch():
    init, _ = of.serial(of.conv(4, (3, 3)), of.max_pool((2, 2)), of.flatten, of.dense(2))
    assert init(KEY, (-1, 8, 8, 1))[0] == (-1, 2)


def test_dropout():
    apply = of.dropout(0.5)[1]
    assert set(dt.unique(apply((), dt.ones(200), rng=KEY)).tolist()) == {0.0, 2.0}
    with pytest.raises(ConfigError, match="key"):
        apply((), dt.ones(3))
