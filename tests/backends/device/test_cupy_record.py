"""The record of CuPy's signatures that the device double goes by."""

from __future__ import annotations

import numpy as np
import pytest
from standins.device_double.record import parameters, record
from standins.device_double.signatures import BFLOAT16, Unsupported, bind, choose, table


def test_it_is_what_cupy_has():
    """Where CuPy is installed (no driver is needed)."""
    pytest.importorskip("cupy")
    assert record() == table()


def test_parameters_as_text():
    def one(a, /, b=1, *c, d, e=2, **f): ...

    assert parameters(one) == "a / b= *c d e= **f"
    assert parameters(lambda a, *, b=1: a) == "a * b="


def test_arguments_are_bound_by_them():
    assert bind("functions", "sum", (1, 0), {"keepdims": True}) == {
        "a": 1, "axis": 0, "keepdims": True,
    }  # fmt: skip
    with pytest.raises(Unsupported, match="where"):
        bind("functions", "sum", (1,), {"where": True})
    with pytest.raises(Unsupported, match="no function geomspace"):
        bind("functions", "geomspace", (1, 2), {})


def test_loops_are_found_as_cupy_finds_them():
    def result(name, *args, what="ufuncs"):
        return choose(name, args, what=what)[1][0]

    f4, i8, half = np.ones(1, "f4"), np.ones(1, "i8"), np.ones(1, BFLOAT16)
    assert result("add", f4, 2.0) == "f4" and result("add", i8, 2.0) == "f8"
    assert result("add", half, 1) == BFLOAT16 and result("add", half, f4) == "f4"
    assert result("add", np.ones(1, "i1"), 1) == "i1" and result("sqrt", i8) == "f8"
    assert result("where", True, half, half, what="inner") == "f4"  # no loop for bfloat16
    assert result("gammaln", half, what="special") == "f4"
    with pytest.raises(Unsupported, match="no loop"):
        result("logical_not", np.ones(1, "c8"))
    with pytest.raises(Unsupported, match="no ufunc spacing"):
        result("spacing", f4)
