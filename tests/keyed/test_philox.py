"""Philox's bits, and the numbers that TensorFlow makes of them.

Expected: Random123's known answers (``kat_vectors``), and tensorflow-cpu 2.21.0's
``stateless_*([..], seed=[1, 2])``.
"""

from __future__ import annotations

import numpy as np

from disttrain.keyed import philox


def test_known_answers():
    zeros = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox.bits(0, 0, 4).tolist() == zeros
    assert philox.bits((1 << 64) - 1, (1 << 128) - 1, 4).tolist() == ones


def test_counters_go_on_and_wrap_around():
    whole = philox.bits(7, (1 << 64) - 1, 12)
    parts = [philox.bits(7, (1 << 64) - 1 + i, 4) for i in range(3)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_tensorflows_numbers():
    key, counter = philox.key_and_counter((1, 2))
    found = philox.uniform(key, counter, 2, np.float32)
    assert np.allclose(found, [0.8440604, 0.19204533], rtol=0, atol=1e-7)
    found = philox.normal(key, counter, 7, np.float32)
    wanted = [0.5441101, 0.20738031, 0.07356432, 0.04643455, -1.3015898, -0.9538565, 0.84172857]
    assert np.allclose(found, wanted, rtol=1e-5)
    found = philox.truncated_normal(key, counter, 5, np.float32)
    assert np.allclose(
        found, [0.5441101, 0.20738031, 0.07356432, 0.04643455, 0.16820592], atol=1e-5
    )


def test_limits_and_types():
    for kind in (np.float16, np.float32, np.float64):
        found = philox.uniform(3, 4, 1000, kind)
        assert found.dtype == kind
        assert 0 <= found.min() <= found.max() < 1
    drawn = philox.integers(1, 2, 1000, -3, 4, np.int64)
    assert set(drawn.tolist()) == set(range(-3, 4))
    assert philox.full(1, 2, 3, np.uint64).dtype == np.uint64
    assert np.abs(philox.truncated_normal(5, 6, 999, np.float64)).max() < 2
    assert philox.bits(1, 2, 0).shape == (0,)
