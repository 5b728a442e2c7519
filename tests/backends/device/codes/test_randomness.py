"""The generator of devices, and the laws of its draws."""

import numpy as np

from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.codes.randomness import philox
from support.cases.code_cases import FLOATS


def test_the_generator_is_the_published_one():
    (zeros,) = philox(np.zeros(1, np.uint64), 0, 0)
    assert [hex(w) for w in zeros] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    ones = (1 << 64) - 1
    (ones,) = philox(np.full(1, ones, np.uint64), ones, ones)
    assert [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def test_draws_have_the_moments_of_their_laws():
    n = 60_000
    for dtype in FLOATS:
        u, z, e = (np.zeros(n, dtype) for _ in range(3))
        codes.UNIFORM.reference(u, 1, 2)
        codes.NORMAL.reference(z, 1, 2)
        codes.EXPONENTIAL.reference(e, 1, 2)
        u, z, e = (a.astype(np.float64) for a in (u, z, e))
        assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 5e-3
        assert abs(z.mean()) < 0.01 and abs(z.std() - 1) < 0.01
        assert abs((z**3).mean()) < 0.05 and abs((z**4).mean() - 3) < 0.1
        assert abs(e.mean() - 1) < 0.01 and e.min() >= 0
        assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01
    whole = np.zeros(n, np.int64)
    codes.INTEGERS.reference(whole, 1, 2, -3, 7)
    assert np.all(np.abs(np.bincount(whole + 3, minlength=7) / n - 1 / 7) < 0.005)
    other = np.zeros(n, np.int64)
    codes.INTEGERS.reference(other, 1, 3, -3, 7)
    assert abs((whole == other).mean() - 1 / 7) < 0.005
