"""Products of quantized numbers on devices: those of the host, also where sums are long."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.device import quantization
from support.on_device import on_device

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("k", [30, 700])
def test_sums_are_exact(k):
    rng = np.random.default_rng(k)
    x = rng.integers(0, 256, (3, k)).astype(np.uint8)
    w = rng.integers(-128, 128, (4, k)).astype(np.int8)
    given = x, w, np.ones(4, "f4"), None, np.zeros(4, "f4")
    wanted = (x.astype(np.int64) - 3) @ w.T.astype(np.int64)
    (found,) = on_device("integer_linear", *given, x_scale=1.0, x_zero=3)
    assert np.array_equal(found, wanted.astype("f4"))
    assert quantization._exact(k) == ("f4" if k < 500 else "f8")
