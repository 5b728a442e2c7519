"""Hand-written device codes, run by a host compiler, against their meaning by numpy."""

import numpy as np
import pytest
from standins import cuda_on_host as host

from disttrain.backends.device import codes
from disttrain.backends.device.randomness import philox
from disttrain.backends.device.structs import Operand, Pointer, record
from disttrain.errors import DimError, DTypeError, ShapeError
from support.cases.code_cases import FLOATS, code_cases

needs_compiler = pytest.mark.skipif(host.COMPILER is None, reason="there is no C++ compiler here")


class Cases:
    """Codes with arguments, compiled together, run, and held against the references."""

    def __init__(self):
        self.cases = []

    def add(self, code, *args, tolerance=0.0):
        mine = [_apart(a) for a in args]
        self.cases.append((host.CodeCase(code, *mine), args, tolerance))

    def check(self, folder):
        library = host.compiled([case for case, _, _ in self.cases], folder)
        for case, args, tolerance in self.cases:
            host.run(library, case)
            case.code.reference(*args)
            for k, (got, want) in enumerate(zip(case.args, args)):
                if isinstance(want, np.ndarray):
                    _same(got, want, tolerance, f"{case.code.name} {k} {want.dtype} {want.shape}")


def _apart(a):
    """A copy; what only repeats is read only, and stays."""
    return a.copy(order="K") if isinstance(a, np.ndarray) and 0 not in a.strides else a


def _same(got, want, tolerance, label):
    if not tolerance or want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=label)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=label)


@needs_compiler
def test_codes_mean_what_their_references_do(tmp_path):
    cases = Cases()
    for code, args, tolerance in code_cases():
        cases.add(code, *args, tolerance=tolerance)
    cases.check(tmp_path)


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


def test_rows_are_added_where_their_index_says():
    rng = np.random.default_rng(2)
    index, g = rng.integers(0, 6, 300), rng.normal(size=(300, 4))
    out, want = np.zeros((6, 4)), np.zeros((6, 4))
    order = np.argsort(index, kind="stable")
    codes.ADD_ROWS.reference(g, order, index[order], out)
    np.add.at(want, index, g)
    np.testing.assert_allclose(out, want, rtol=1e-12)
    with pytest.raises(DimError, match="take: index 7 is out of range for 4 rows"):
        codes.TAKE.reference(np.zeros((1, 4, 2)), np.array([3, 7]), np.zeros((1, 2, 2)))


def test_folds_of_more_arrays_than_a_launch_takes_use_several():
    arrays = [Operand((3,), (4,), "float32")] * 130
    plan = codes.fold_many("squares").plan([Operand((130,), (8,), "float64"), *arrays])
    partly, _, more, joined = plan.launches
    assert (partly.values["count"], more.values["count"]) == (128, 2)
    assert more.values["p"][:3] == (Pointer(129), Pointer(130), 0)
    assert more.values["to"] == joined.values["part"] == Pointer(-1, 1024)
    assert joined.values["to"] == Pointer(0, 1024) and plan.scratch == 1024 + 256
    assert record(list(partly.fields)).itemsize < 4096


def test_what_does_not_fit_a_code_is_said():
    def operand(shape, dtype, gap=1):
        return Operand(shape, tuple(4 * gap for _ in shape), dtype)

    with pytest.raises(DTypeError, match="out is int32; it must be float32 or float64"):
        codes.UNIFORM.plan([operand((3,), "int32")])
    with pytest.raises(ShapeError, match=r"array 0, of shape \(3,\), has gaps"):
        codes.UNIFORM.plan([operand((3,), "float32", gap=2)])
    with pytest.raises(TypeError, match="uniform: 2 arguments; 3 are needed"):
        codes.UNIFORM.split((1, 2))
