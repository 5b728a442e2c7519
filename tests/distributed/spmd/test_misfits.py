"""What is said of specs that do not fit."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed.spmd.misfits import NotReplicated, Told, axes_of, names_of
from disttrain.errors import ShapeError

TOLD = Told("f", {"x": 2, "y": 3})


def test_specs():
    assert axes_of((("x", "y"), None, "z")) == ["x", "y", "z"] and axes_of(None) == []
    assert names_of(None) == () and names_of("x") == ("x",)


@pytest.mark.parametrize(
    ("check", "error", "text"),
    [
        (
            lambda: TOLD.check_argument(1, dt.ones(4), (None, "x")),
            ShapeError,
            r"args\[1\] has shape",
        ),
        (lambda: TOLD.check_argument(0, dt.ones(4), (("x", "y"),)), ShapeError, "total size 6"),
        (lambda: TOLD.check_result(dt.ones(4), ("x", "y")), ShapeError, "result has shape float32"),
        (lambda: TOLD.check_result(3, ("x",)), ShapeError, "rank 0"),
    ],
)
def test_they_are_refused(check, error, text):
    with pytest.raises(error, match=text):
        check()


def test_they_fit():
    TOLD.check_argument(0, dt.ones(6, 2), (("x", "y"), None))
    TOLD.check_argument(0, "anything", ("x",))
    TOLD.check_result(3, ())
    assert isinstance(TOLD.differs((), "x"), NotReplicated)
    assert "shape (2, 3) with corresponding axis names ('x', 'y')" in str(TOLD.differs((), "x"))
