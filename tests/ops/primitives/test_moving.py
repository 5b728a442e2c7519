"""Copies from one place to another."""

from __future__ import annotations

import disttrain as dt
from disttrain.ops.primitives.moving import move


def test_a_move_within_the_host_is_a_copy_with_a_gradient():
    x = dt.arange(3.0).requires_grad_()
    cpu = dt.device("cpu")
    out = move(x, to=cpu, back=cpu)
    assert out.tolist() == x.tolist() and out.data_ptr() != x.data_ptr()
    (out * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_tensors_without_numbers_move_by_shape_alone():
    x = dt.ones(2, 3).to("meta")
    assert x.is_meta and x.shape == (2, 3) and x.dtype is dt.float32
