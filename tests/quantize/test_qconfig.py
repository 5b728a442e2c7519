"""Configurations: which observers they make."""

from __future__ import annotations

import pytest

from disttrain import quantize
from disttrain.errors import ConfigError


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "onednn", "qnnpack"])
def test_backends(backend):
    static = quantize.get_default_qconfig(backend)
    reduced, rows = backend in ("x86", "fbgemm"), backend != "qnnpack"
    assert static.activation().quant_max == (127 if reduced else 255)
    assert isinstance(static.weight(), quantize.PerChannelMinMaxObserver) == rows
    for version in (0, 1):
        qat = quantize.get_default_qat_qconfig(backend, version)
        assert isinstance(qat.activation(), quantize.FakeQuantize)
        assert qat.weight().is_per_channel == rows and qat.activation().quant_max == (
            127 if reduced else 255
        )


def test_a_config_takes_classes_and_not_objects():
    with pytest.raises(ConfigError, match="received observer instance"):
        quantize.QConfig(quantize.MinMaxObserver(), quantize.default_weight_observer)
    with pytest.raises(ConfigError, match="supported backends: x86"):
        quantize.get_default_qconfig("tpu")
    one = quantize.QConfig(quantize.MinMaxObserver, quantize.default_weight_observer)
    assert one == tuple(one) and one._replace(weight=quantize.NoopObserver) != one
