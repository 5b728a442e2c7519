"""In-place functions, copies of views and other names of the top level."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.operations import names

NAMES = names()


def test_functions_in_place():
    x = dt.tensor([1.0, 4.0])
    assert NAMES["sqrt_"](x) is x and x.tolist() == [1, 2]
    assert NAMES["clamp_"](input=x, min=1.5).tolist() == [1.5, 2]
    assert NAMES["zero_"](x).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "args"),
    [("t", ()), ("select", (0, 1)), ("slice", (1, 0, 2)), ("unsqueeze", (0,)), ("alias", ())],
)
def test_copies_share_no_memory(name, args):
    x = dt.arange(6.0).reshape(2, 3)
    got = NAMES[f"{name}_copy"](x, *args)
    assert got._base is None and got.is_contiguous()
    out = dt.empty(0)
    assert NAMES[f"{name}_copy"](x, *args, out=out) is out and out.equal(got)
    x.zero_()
    assert got.abs().sum() > 0


def test_several_copies_and_a_range():
    x = dt.arange(4.0)
    halves = (dt.empty(2), dt.empty(2))
    NAMES["split_copy"](x, 2, out=halves)
    assert [h.tolist() for h in halves] == [[0, 1], [2, 3]]
    assert NAMES["range"](1, 3).tolist() == [1, 2, 3]
    assert NAMES["fill"](x, 2).tolist() == [2, 2, 2, 2] and x[1] == 1
