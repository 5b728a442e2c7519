"""Writes in place: counted, and refused where autograd could not follow."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.core.writes import touched
from disttrain.errors import AutogradError, CaptureError
from disttrain.func import grad, vmap


def test_writes_are_counted_for_all_names_of_a_memory():
    x = dt.ones(4)
    y = x[:2]
    before = x._version
    y.add_(1)
    x.detach().zero_()
    assert x._version == y._version == before + 2
    touched(x)
    assert y._version == before + 3


PAIR = dt.ones(2).requires_grad_() * 2
REFUSED = {
    "a leaf": (lambda: dt.ones(2).requires_grad_(), "a leaf of shape"),
    "a view of a leaf": (lambda: dt.ones(2).requires_grad_()[:1], "a view of a leaf"),
    "one of several views": (lambda: PAIR.unbind()[0], "multiple views"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(AutogradError, match=message):
        make().add_(1)
    with dt.no_grad():
        make().add_(1)


def test_a_view_made_without_a_graph():
    base = dt.ones(2).requires_grad_() * 2
    with dt.no_grad():
        view = base[:1]
    for write in (lambda: view.mul_(2), lambda: view.copy_(dt.ones(1)), view.zero_):
        with pytest.raises(AutogradError, match="no_grad mode"):
            write()
    assert base.tolist() == [2.0, 2.0]
    with dt.no_grad():
        view.mul_(2)
    assert base.tolist() == [4.0, 2.0]


def test_transforms_leave_the_world_outside_alone():
    outside = dt.zeros(3)
    with pytest.raises(CaptureError, match="captured tensor of shape"):
        grad(lambda x: (x * outside.add_(1)).sum())(dt.ones(3))
    assert outside.tolist() == [0.0] * 3
    assert vmap(lambda x: x.clone().add_(1))(dt.ones(2, 3)).tolist() == [[2.0] * 3] * 2
