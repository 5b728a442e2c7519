"""Trees as vectors, and checks that programs make."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.vectors import raveled
from tests.support.borders import BORDER


def test_there_and_back():
    tree = {"a": dt.arange(3.0), "b": [dt.ones(2, 2), dt.tensor(7)]}
    flat, back = raveled(BORDER, tree)
    assert flat.tolist() == [0, 1, 2, 1, 1, 1, 1, 7]
    assert back(flat * 2)["b"][1].tolist() == 14
    with pytest.raises(TypeError, match="expected shape"):
        back(dt.ones(3))
    assert raveled(BORDER, [])[1](None) == []
