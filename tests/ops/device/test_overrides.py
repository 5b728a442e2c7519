"""Elementwise primitives on the strict double, where array modules differ from numpy."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from support.on_device import agree, on_device, on_host

pytestmark = pytest.mark.usefixtures("double")
ODD = [0.0, -0.0, 1, -1, 0.1, -0.1, 3, -3, 7.5, math.inf, -math.inf, math.nan, 1e30, 0.3]


@pytest.mark.parametrize("name", "floor_divide fmod remainder truncate_divide".split())
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divisions_of_odd_numbers(name, kind):
    a, b = (x.astype(kind) for x in np.meshgrid(ODD, ODD))
    (want,), (got,) = on_host(name, a, b), on_device(name, a, b)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("name", "sign sgn trunc clip_below clip_above heaviside isinf".split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_odd_numbers(name):
    a, b = (x.astype("f4") for x in np.meshgrid(ODD, ODD))
    agree(name, *((a, b) if name in ("clip_below", "clip_above", "heaviside") else (a,)))


def test_more_axes_than_kernels_walk():
    a = np.arange(1024.0, dtype="f4").reshape((2,) * 10).transpose(9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    agree("add", a, a[:, :1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_whole_numbers():
    big = np.array([2**62 + 1, -(2**62) - 1, 7, -7, 0], "i8")
    by = np.array([2**61, 3, -2, 2, 5], "i8")
    for name in ("fmod", "remainder", "floor_divide", "truncate_divide"):
        agree(name, big, by)
    agree("pow", np.array([2, -1, 1, 3, 0], "i4"), np.array([-3, -3, -2, 4, 0], "i4"))
    with pytest.raises(Exception, match="divided by zero"):
        on_device("floor_divide", big, 0)
    with pytest.raises(Exception, match="negative integer power"):
        on_device("pow", big, -1)


def test_numbers_and_arrays_of_one_type_do_not_share_a_kernel():
    a = np.arange(3.0)
    agree("add", a, a)
    agree("add", np.float64(2.0), a)
    agree("add", a, np.float64(2.0))
    agree("where", a > 1, a, 0.0)
    agree("where", a > 1, 0.0, a)


def test_the_table_is_not_loaded_with_the_package():
    code = "import sys, disttrain; print('disttrain.ops.device' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
