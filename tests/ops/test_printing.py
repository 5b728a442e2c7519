"""How tensors print: torch's choice of notation."""

from __future__ import annotations

import pytest

import disttrain as dt

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 2.0], "tensor([1., 2.])"),
        ([NAN, 1.0], "tensor([nan, 1.])"),
        ([INF, 2.5], "tensor([   inf, 2.5000])"),
        ([NAN, NAN], "tensor([nan, nan])"),
        (INF, "tensor(inf)"),
        (0.0, "tensor(0.)"),
        ([1.0, 2000.0], "tensor([1.0000e+00, 2.0000e+03])"),
        ([0.1, -0.25], "tensor([ 0.1000, -0.2500])"),
        ([1e-5, 1.0], "tensor([1.0000e-05, 1.0000e+00])"),
        ([], "tensor([])"),
        ([True, False], "tensor([ True, False])"),
        ([1, -20], "tensor([  1, -20])"),
    ],
)
def test_notation(values, text):
    assert str(dt.tensor(values)) == text
