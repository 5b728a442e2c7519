"""Places by order and special functions on the strict double."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.on_device import agree

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("kind", ["f4", "f2", ml_dtypes.bfloat16, "f8", "i4", "?"], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_order_is_stable_and_nan_is_largest(kind):
    rng = np.random.default_rng(1)
    a = rng.integers(-2, 3, (5, 70)).astype(kind)
    if np.dtype(kind).kind in "fV":
        a[1, [3, 8]] = np.nan
    for dim in (0, 1):
        for way in (True, False):
            agree("argsort", a, dim=dim, descending=way)
        agree("median_places", a, dim=dim)
    if kind != "?":
        agree("top_places", a, k=30, dim=1, largest=True)
        agree("top_places", a, k=3, dim=0, largest=False)


def test_nothing_to_sort():
    agree("argsort", np.empty((0, 3), "f4"), dim=0, descending=True)


@pytest.mark.parametrize("name", "lgamma erfc erfinv i0 i1".split())
def test_special_functions_of_every_type(name):
    a = np.linspace(-0.9, 0.9, 12).reshape(3, 4)
    for kind, tol in (("f8", 1e-12), ("f4", 1e-6), ("f2", 1e-3), (ml_dtypes.bfloat16, 1e-2)):
        agree(name, a.astype(kind), tol=tol)
    for n in (0, 1, 2):
        agree("polygamma", a.astype("f4") + 1, n=n, tol=1e-6)
    agree("igamma", a.astype("f4") + 1, a[0].astype("f4") + 2, tol=1e-6)
    agree("igamma", a.astype("f4") + 1, 2.0, tol=1e-6)
