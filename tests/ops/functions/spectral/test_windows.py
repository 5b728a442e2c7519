"""Windows are numpy's; periodic ones are those of one more point."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

NAMES = ("bartlett", "blackman", "hamming", "hann", "kaiser")


@pytest.mark.parametrize("length", [2, 5, 8])
@pytest.mark.parametrize("name", NAMES)
def test_symmetric_windows_are_numpys(name, length):
    fn = getattr(np, {"hann": "hanning"}.get(name, name))
    want = fn(length, 12.0) if name == "kaiser" else fn(length)
    got = getattr(dt, f"{name}_window")(length, periodic=False, dtype=dt.float64)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_types_and_gradients(name):
    make = getattr(dt, f"{name}_window")
    assert make(0).shape == (0,) and make(1).tolist() == [1.0]
    assert make(6).tolist() == make(7, periodic=False)[:6].tolist()
    assert make(4, dtype=dt.bfloat16).dtype is dt.bfloat16
    assert make(4, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="non-negative window_length"):
        make(-1)
    with pytest.raises(TypeError, match="floating point dtypes"):
        make(3, dtype=dt.int64)


def test_other_shapes():
    assert dt.hamming_window(3, False, 0.5, 0.5).tolist() == dt.hann_window(3, False).tolist()
    np.testing.assert_allclose(
        dt.kaiser_window(5, False, 3.0, dtype=dt.float64).numpy(), np.kaiser(5, 3.0)
    )
