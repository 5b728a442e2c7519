"""Checks that a program makes itself."""

from __future__ import annotations

import pytest

from disttrain.func.trees.asserts import CheckFailed, check, checkify, running


def halved(x):
    check(x > 0, "x must be positive, got {x}", x=x)
    return x / 2


def test_at_once_or_beside_the_result():
    with pytest.raises(CheckFailed, match="got -1"):
        halved(-1)
    error, out = checkify(halved)(-2)
    assert out == -1 and error.get() == "x must be positive, got -2" and not running()
    with pytest.raises(CheckFailed):
        error.throw()
