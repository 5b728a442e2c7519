"""Element types: what every operation gives for every pair of types, and what it refuses, against
PyTorch's answers (``data/types.json``; made by ``scripts/type_table.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn
from disttrain.errors import DTypeError, NumberError
from disttrain.ops import promotion
from support.cases.type_cases import GROUPS, LETTERS

DATA = json.loads((Path(__file__).parent / "data" / "types.json").read_text())
WANT = {name: table["rows"] for table in DATA["tables"] for name in table["names"]}
HALF_COMPLEX = "?"  # PyTorch's type of complex numbers in halves, which is not there here


def different(name: str, got: str) -> list[str]:
    """Where the answer is not PyTorch's: "first second: theirs, ours"."""
    rows, ours = WANT[name].split(), got.split()
    assert [len(r) for r in rows] == [len(r) for r in ours]
    letters = list(LETTERS.values())
    found = []
    for i, (row, mine) in enumerate(zip(rows, ours, strict=True)):
        for j, (want, have) in enumerate(zip(row, mine, strict=True)):
            if want != have and not _half_complex(name, i, j, want, len(rows), letters):
                place = f"{letters[i]} {j if len(row) < len(letters) else letters[j]}"
                found.append(f"{name}, {place if len(rows) > 1 else j}: {want}, {have}")
    return found


def _half_complex(name: str, i: int, j: int, want: str, count: int, letters: list) -> bool:
    """float16 beside a complex number is complex32 in PyTorch, and half of its operations are
    missing there; here it is complex64, which has all."""
    if want == HALF_COMPLEX:
        return True
    if count == 1 or want != "!":
        return False
    if name.rsplit(" ", 1)[-1] not in ("d0", "0d", "dn", "0n", "nd") and name != "ldexp dd":
        return False
    half, numbers = letters.index("h"), (letters.index("F"), letters.index("D"), 3)
    return (i == half and j in numbers) or (j == half and i in numbers)


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_types_are_those_of_pytorch(group):
    found, asked = [], 0
    for name, got in group(dt):
        assert name in WANT, f"{name}: not in the data; run scripts/type_table.py"
        asked += len(got)
        found += different(name, got)
    assert asked > 1000
    assert found == []


def test_promotion_of_types_is_a_lattice():
    """The smallest common type does not depend on order or grouping."""
    kinds = [getattr(dt, name) for name in LETTERS]
    for a in kinds:
        assert dt.promote_types(a, a) is a
        for b in kinds:
            both = dt.promote_types(a, b)
            assert both is dt.promote_types(b, a)
            assert dt.promote_types(both, b) is both
            assert dt.can_cast(a, both)


def test_integers_over_zero_are_errors():
    a, zero = dt.tensor([5, -3]), dt.tensor([1, 0])
    for run in (
        lambda: a // zero, lambda: a % zero, lambda: dt.fmod(a, zero), lambda: a // 0,
        lambda: dt.div(a, zero, rounding_mode="trunc"), lambda: 7 // zero, lambda: 7 % zero,
        lambda: dt.div(a, 0, rounding_mode="floor"), lambda: a.clone().remainder_(zero),
    ):  # fmt: skip
        with pytest.raises(NumberError, match="zero"):
            run()
    with pytest.raises(ZeroDivisionError):
        a // 0
    assert (a / 0).tolist() == [np.inf, -np.inf]
    assert (a.float() // 0).tolist() == [np.inf, -np.inf]
    with pytest.raises(RuntimeError, match="negative"):
        a**-1
    assert (a ** dt.tensor([-1, -2])).tolist() == [0, 0]
    assert (dt.tensor([1, -1, 2]) ** dt.tensor([-3, -3, 3])).tolist() == [1, -1, 8]


def test_quotients_of_integers_are_rounded_as_asked():
    a, b = dt.tensor([7, -7, 7, -7]), dt.tensor([2, 2, -2, -2])
    assert dt.div(a, b, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert dt.div(a, b, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    big = dt.tensor([2**62 + 1])
    assert dt.div(big, 1, rounding_mode="trunc").tolist() == [2**62 + 1]


def test_numbers_wrap_in_arithmetic_and_must_fit_where_they_are_written():
    u, i = dt.tensor([1, 200], dtype=dt.uint8), dt.tensor([-3, 5], dtype=dt.int8)
    assert (u + 300).tolist() == [45, 244] and (300 - u).tolist() == [43, 100]
    assert (i + 300).tolist() == [41, 49] and (u & 300).tolist() == [0, 8]
    assert u.clone().add_(300).tolist() == [45, 244]
    assert u.clone().fill_(-1).tolist() == [255, 255]
    for run in (
        lambda: u.clone().fill_(300), lambda: dt.full((2,), 300, dtype=dt.uint8),
        lambda: u.masked_fill(u > 1, 300), lambda: u.clone().__setitem__(0, 300),
        lambda: u.clamp(0, 300), lambda: dt.where(u > 1, u, 300), lambda: i.fill_(float("nan")),
        lambda: dt.zeros(2, dtype=dt.half).fill_(1e5), lambda: dt.full((2,), 1e5, dtype=dt.half),
        lambda: dt.full((2,), 1j, dtype=dt.float32),
        lambda: dt.ones(2, dtype=dt.half).clamp(max=1e5),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match="overflow"):
            run()


def test_a_half_type_beside_a_number_is_rounded_once():
    h = dt.tensor([0.01, 60000.0], dtype=dt.half)
    x = h.float()
    for run in (
        lambda a: a * 1e-8, lambda a: a / 1e6, lambda a: a * dt.tensor(1e-7),
        lambda a: a.clone().mul_(1e-8), lambda a: a.clone().div_(1e6), lambda a: 1e-8 * a,
    ):  # fmt: skip
        np.testing.assert_array_equal(run(h).numpy(), run(x).numpy().astype(np.float16))
    y = h.clone().requires_grad_()
    (y / 1e5).sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), np.float16([1e-5, 1e-5]))


def test_the_largest_numbers_are_those_of_finfo():
    for kind, largest in promotion._LARGEST.items():
        assert dt.finfo(kind).max == largest
        assert promotion.fitted("test", largest, kind) == largest
    assert set(promotion._LARGEST) == {k for k in dt.core.dtypes.ALL if k.is_floating_point}
