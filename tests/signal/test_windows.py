"""Windows against numpy's, and against what they are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError
from disttrain.signal import windows

BY_NUMPY = {"bartlett": np.bartlett, "blackman": np.blackman, "hamming": np.hamming,
            "hann": np.hanning, "kaiser": lambda m: np.kaiser(m, 12.0)}  # fmt: skip


@pytest.mark.parametrize("points", [0, 1, 2, 7, 10])
@pytest.mark.parametrize("name", BY_NUMPY)
def test_symmetric_and_periodic_ones(name, points):
    make = getattr(windows, name)
    found = make(points, dtype=dt.float64)
    np.testing.assert_allclose(found.numpy(), BY_NUMPY[name](points), atol=1e-12)
    if points > 1:
        longer = BY_NUMPY[name](points + 1)[:-1]
        found = make(points, sym=False, dtype=dt.float64).numpy()
        np.testing.assert_allclose(found, longer, atol=1e-12)
    assert make(points).dtype == dt.float32


@pytest.mark.parametrize("sym", [True, False])
def test_those_with_shapes_of_their_own(sym):
    n, last = np.arange(6.0), 5 if sym else 6
    kind = {"sym": sym, "dtype": dt.float64}
    expected = {
        windows.exponential(6, tau=2.0, **kind): np.exp(-np.abs(n - last / 2) / 2),
        windows.gaussian(6, std=1.5, **kind): np.exp(-0.5 * ((n - last / 2) / 1.5) ** 2),
        windows.cosine(6, **kind): np.sin(np.pi * (n + 0.5) / (last + 1)),
        windows.general_cosine(6, a=[0.4, 0.5, 0.1], **kind): 0.4
        - 0.5 * np.cos(2 * np.pi * n / last) + 0.1 * np.cos(4 * np.pi * n / last),
        windows.general_hamming(6, alpha=0.6, **kind): 0.6 - 0.4 * np.cos(2 * np.pi * n / last),
    }  # fmt: skip
    for found, numbers in expected.items():
        np.testing.assert_allclose(found.numpy(), numbers, atol=1e-12)
    assert math.isclose(windows.nuttall(7).max().item(), 1.0, rel_tol=1e-6)
    moved = windows.exponential(3, center=0.0, sym=False)
    np.testing.assert_allclose(moved.numpy(), np.exp([0.0, -1.0, -2.0]), rtol=1e-6)


def test_what_is_given_may_be_a_tensor_and_the_window_a_leaf():
    assert windows.hann(dt.tensor(3)).tolist() == [0, 1, 0]
    assert windows.hann(4, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: windows.hann(-1), ConfigError, "non-negative"),
        (lambda: windows.hann(3, dtype=dt.int32), DTypeError, "float32 or float64"),
        (lambda: windows.hann(3, layout=dt.sparse_coo), ConfigError, "strided"),
        (lambda: windows.gaussian(3, std=0.0), ConfigError, "positive"),
        (lambda: windows.exponential(3, center=1.0), ConfigError, "symmetric"),
        (lambda: windows.general_cosine(3, a=[]), ConfigError, "empty"),
    ],
)
def test_misuse(call, error, told):
    with pytest.raises(error, match=told):
        call()
