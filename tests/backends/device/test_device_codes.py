"""Hand-written device codes, run by a host compiler, against their meaning by numpy."""

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.device import codes
from disttrain.backends.device.randomness import philox
from disttrain.backends.device.structs import Operand
from disttrain.errors import DTypeError, ShapeError
from support import cuda_on_host as host

needs_compiler = pytest.mark.skipif(host.COMPILER is None, reason="there is no C++ compiler here")
BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BF16)
SEED, OFFSET = 0x0123456789ABCDEF, 0xFEDCBA9876543210


class Cases:
    """Codes with arguments, compiled together, run, and held against the references."""

    def __init__(self):
        self.cases = []

    def add(self, code, *args, tolerance=0.0):
        mine = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args]
        self.cases.append((host.CodeCase(code, *mine), args, tolerance))

    def check(self, folder):
        library = host.compiled([case for case, _, _ in self.cases], folder)
        for case, args, tolerance in self.cases:
            host.run(library, case)
            case.code.reference(*args)
            for k, (got, want) in enumerate(zip(case.args, args)):
                if isinstance(want, np.ndarray):
                    _same(got, want, tolerance, f"{case.code.name} {k} {want.dtype} {want.shape}")


def _same(got, want, tolerance, label):
    if not tolerance or want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=label)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=label)


def rounding(dtype):
    """What the last place of that type is worth, a few times over."""
    return {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3}.get(dtype.name, 1.6e-2)


FLOATS = [np.dtype(np.float32), np.dtype(np.float64), *HALVES]


def random_cases(cases):
    rng = np.random.default_rng(0)
    for dtype in FLOATS:
        for code in (codes.UNIFORM, codes.NORMAL, codes.EXPONENTIAL):
            tolerance = 0 if code is codes.UNIFORM else rounding(dtype)
            cases.add(code, np.zeros((7, 147), dtype), SEED, OFFSET, tolerance=tolerance)
        x = rng.normal(size=(5, 103)).astype(dtype)
        mask = np.zeros(x.shape, bool)
        cases.add(codes.DROPOUT, x, x * 0, mask, SEED, 3, 0.7, 1 / 0.7)
        cases.add(codes.DROPOUT_AGAIN, x, x * 0, SEED, 3, 0.7, 1 / 0.7)
    cases.add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 1, -5, 17)
    cases.add(codes.INTEGERS, np.zeros(1001, np.int64), SEED, 2, -(1 << 63), (1 << 64) - 1)
    for dtype in FLOATS[:2]:
        p = rng.random(101).astype(dtype)
        cases.add(codes.BERNOULLI, p, np.zeros(101, dtype), SEED, 4)
        cases.add(codes.BERNOULLI, p, np.zeros(101, bool), SEED, 4)
    cases.add(codes.BERNOULLI_NUMBER, np.zeros(77, bool), SEED, 5, 0.25)
    cases.add(codes.BERNOULLI_NUMBER, np.zeros(77, BF16), SEED, 5, 0.25)


@needs_compiler
def test_codes_mean_what_their_references_do(tmp_path):
    cases = Cases()
    random_cases(cases)
    cases.check(tmp_path)


def test_the_generator_is_the_published_one():
    (zeros,) = philox(np.zeros(1, np.uint64), 0, 0)
    assert [hex(w) for w in zeros] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    ones = (1 << 64) - 1
    (ones,) = philox(np.full(1, ones, np.uint64), ones, ones)
    assert [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def test_draws_have_the_moments_of_their_laws():
    n = 200_000
    for dtype in FLOATS:
        u, z, e = (np.zeros(n, dtype) for _ in range(3))
        codes.UNIFORM.reference(u, 1, 2)
        codes.NORMAL.reference(z, 1, 2)
        codes.EXPONENTIAL.reference(e, 1, 2)
        u, z, e = (a.astype(np.float64) for a in (u, z, e))
        assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 4e-3
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


def test_what_does_not_fit_a_code_is_said():
    def operand(shape, dtype, gap=1):
        return Operand(shape, tuple(4 * gap for _ in shape), dtype)

    with pytest.raises(DTypeError, match="out is int32; it must be float32 or float64"):
        codes.UNIFORM.plan([operand((3,), "int32")])
    with pytest.raises(ShapeError, match=r"array 0, of shape \(3,\), has gaps"):
        codes.UNIFORM.plan([operand((3,), "float32", gap=2)])
    with pytest.raises(TypeError, match="uniform: 2 arguments; 3 are needed"):
        codes.UNIFORM.split((1, 2))
