"""Hand-written device codes, run by a host compiler, against their meaning by numpy."""

import numpy as np
import pytest
from standins import cuda_on_host as host

from disttrain.backends.device.codes import table as codes
from disttrain.backends.device.structs import Operand
from disttrain.errors import DTypeError, ShapeError
from support.cases.code_cases import code_cases

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


def test_what_does_not_fit_a_code_is_said():
    def operand(shape, dtype, gap=1):
        return Operand(shape, tuple(4 * gap for _ in shape), dtype)

    with pytest.raises(DTypeError, match="out is int32; it must be float32 or float64"):
        codes.UNIFORM.plan([operand((3,), "int32")])
    with pytest.raises(ShapeError, match=r"array 0, of shape \(3,\), has gaps"):
        codes.UNIFORM.plan([operand((3,), "float32", gap=2)])
    with pytest.raises(TypeError, match="uniform: 2 arguments; 3 are needed"):
        codes.UNIFORM.split((1, 2))
