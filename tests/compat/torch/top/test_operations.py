"""In-place functions, copies of views and other names of the top level."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.top.operations import names

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


def test_numbers_that_could_be_symbols():
    assert NAMES["sym_max"](1, 2.0) == 2.0 and isinstance(NAMES["sym_min"](1, 2.0), float)
    assert NAMES["sym_max"](1, 2) == 2 and NAMES["sym_sum"]([1, 2]) == 3
    assert NAMES["sym_ite"](False, 1, 2) == 2 and NAMES["sym_int"](2.5) == 2
    assert not isinstance(3, NAMES["SymInt"])


def test_norms_and_flags():
    x = dt.tensor([[3.0, 0.0], [0.0, -4.0]])
    assert NAMES["frobenius_norm"](x, (0, 1)).item() == 5
    assert abs(NAMES["nuclear_norm"](x).item() - 7) < 1e-5
    assert not NAMES["is_distributed"](x) and not x.is_conj() and not dt.is_neg(x)
    NAMES["set_anomaly_enabled"](True, False)
    try:
        assert NAMES["is_anomaly_enabled"]() and not NAMES["is_anomaly_check_nan_enabled"]()
    finally:
        NAMES["set_anomaly_enabled"](False)


def test_elements_of_a_file(tmp_path):
    path = str(tmp_path / "numbers")
    shared = NAMES["from_file"](path, True, 3, dtype=dt.int32)
    shared.copy_(dt.tensor([1, 2, 3]))
    own = NAMES["from_file"](path, size=2, dtype=dt.int32)
    assert own.tolist() == [1, 2]
    own.zero_()
    assert NAMES["from_file"](path, True, 4, dtype=dt.int32).tolist() == [1, 2, 3, 0]
