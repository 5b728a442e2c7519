"""Writing into arrays, and into what a view shows of one."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.primitives import write


def test_values_are_converted_and_broadcast_as_they_are_written():
    for kind, src, wanted in (
        ("f4", np.arange(3), [[0, 1, 2]] * 2),
        ("i8", np.array([1.9, -1.9, 0.5]), [[1, -1, 0]] * 2),
        ("?", np.array(2.0), [[True] * 3] * 2),
    ):
        dst = np.zeros((2, 3), kind)
        write.assign.forward(dst, src)
        assert dst.tolist() == wanted


def test_overlapping_memory_is_read_before_it_is_written():
    a = np.arange(6.0)
    write.assign.forward(a[1:], a[:-1])
    assert a.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]


CHANGES = {
    "a row times three": (lambda y: y[1:].mul_(3), [[2.0, 2.0, 2.0], [6.0, 6.0, 6.0]]),
    "a column filled": (lambda y: y.T[0].fill_(7), [[0.0, 2.0, 2.0], [0.0, 2.0, 2.0]]),
    "places in a row": (lambda y: y.view(-1)[2:4].zero_(), [[2.0, 2.0, 0.0], [0.0, 2.0, 2.0]]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_writes_through_views_are_differentiated(name):
    """By the whole that the view shows: what was overwritten has no gradient."""
    change, slopes = CHANGES[name]
    x = dt.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 2
    change(y)
    y.sum().backward()
    assert x.grad.tolist() == slopes
