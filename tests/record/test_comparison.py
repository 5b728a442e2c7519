"""When rows are equal, by bits and within a tolerance; how their difference is told."""

from __future__ import annotations

import math

import pytest

from disttrain.record import rows
from disttrain.record.comparison import ratio, settings_text, size_text, sum_of, whole_of, why_not
from support.recordings import row


def test_bits_shapes_and_headers():
    assert why_not(row(), row()) == ""
    assert why_not(row(), row(hash=2)) == "value"
    assert why_not(row(), row(shape="float32[5]")) == "shape"
    a, b = (row(kind=rows.COLLECTIVE, about=f"op={op} call 1 of group g", hash=i)
            for i, op in enumerate(("SUM", "MAX")))  # fmt: skip
    assert why_not(a, b) == "header"
    assert why_not(a, row(**{**a._asdict(), "hash": 9}), by_header=True) == ""


@pytest.mark.parametrize("field", ["low", "high", "squares", "sketch"])
def test_a_tolerance_holds_for_all_that_is_known(field):
    a = row()
    near = row(**{**a._asdict(), "hash": 2, field: getattr(a, field) * (1 + 2.0**-22)})
    far = row(**{**a._asdict(), "hash": 2, field: getattr(a, field) * 1.01})
    assert why_not(a, near) == "value"
    assert why_not(a, near, ulp=8) == ""
    assert why_not(a, far, ulp=8) == "value"


def test_no_tolerance_for_what_has_none():
    assert why_not(row(), row(hash=2, nans=1), ulp=1e9) == "value"
    assert why_not(row(kind=rows.DATA), row(kind=rows.DATA, hash=2), ulp=1e9) == "value"
    assert why_not(row(kind=rows.STATE), row(kind=rows.STATE, hash=2), ulp=1e9) == "value"
    later = {"kind": rows.STATE, "step": 1}
    assert why_not(row(**later), row(**later, hash=2), ulp=1) == ""


def test_the_size_of_a_difference():
    said = size_text(row(), row(hash=2, squares=16.0, sketch=1.5))
    assert "one is 2 times the other" in said
    assert "a norm of about 1" in said
    assert "elements are nan" in size_text(row(), row(nans=2))
    assert ratio(row(), row(squares=36.0)) == 3
    assert ratio(row(), row(squares=5.0)) == 0
    assert ratio(row(squares=0.0), row()) == 0


def test_settings_tell_what_differs():
    a, b = row(about="eps=1, lr=0.1"), row(about="eps=1, lr=0.2")
    assert settings_text(a, b) == ("lr=0.1", "lr=0.2")


def test_parts_become_wholes():
    parts = [row(start=4 * i, whole=8, hash=i + 1) for i in range(2)]
    whole = whole_of(parts)
    assert whole is not None
    assert (whole.hash, whole.numel, whole.squares, whole.sketch) == (3, 8, 8.0, 1.0)
    assert whole_of([*parts, parts[0]]) == whole  # a copy counts once
    assert whole_of(parts[:1]) is None
    assert whole_of([row(), row()]) is None
    assert math.isnan(sum_of([row(), row()]).sketch)
