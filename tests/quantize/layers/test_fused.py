"""Several layers in a row, which take over their configuration."""

from __future__ import annotations

import disttrain as dt
from disttrain import nn
from disttrain.quantize.layers import fused


def test_they_are_their_layers_in_a_row():
    first = nn.Linear(2, 2)
    first.qconfig = "a config"
    one, x = fused.LinearReLU(first, nn.ReLU()), dt.randn(3, 2)
    assert one(x).equal(first(x).relu()) and one.qconfig == "a config"
    assert not hasattr(fused.ConvReLU2d(nn.Conv2d(1, 1, 1), nn.ReLU()), "qconfig")
