"""A chunk of a vector as a parameter: what programs for PyTorch read of it."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.fsdp.flat.layout import plan_flat
from disttrain.distributed.fsdp.flat.param import FlatParameter, make_flat

pytestmark = pytest.mark.simulated

LAYOUT = plan_flat([("a", (2, 3)), ("b", (1,))], 2)  # 7 elements, 4 a rank


@pytest.mark.parametrize("orig", [False, True])
def test_shapes_sizes_and_padding(orig):
    p = make_flat(np.zeros(4, np.float32), LAYOUT, True, ("x.a", "x.b"), orig)
    assert p._shapes == ((2, 3), (1,)) and p._numels == (6, 1) and p._sharded_size == (4,)
    assert p._fqns == ("x.a", "x.b") and p._params is None
    if orig:
        assert p._numels_with_padding == (6, 1, 1) and p._is_padding_mask == (False, False, True)
        assert p._unpadded_unsharded_size == (8,)
    else:
        assert p._numels_with_padding == (6, 1) and p._is_padding_mask == (False, False)
        assert p._unpadded_unsharded_size == (7,)
    assert len(p._is_padding_mask) == len(p._numels_with_padding)


def test_without_a_rest_there_is_no_padding():
    p = make_flat(np.zeros(4), plan_flat([("a", (8,))], 2), True, ("a",), True)
    assert p._numels_with_padding == (8,) and p._is_padding_mask == (False,)


def test_it_is_a_parameter_over_the_chunk():
    local = np.arange(4.0)
    p = make_flat(local, LAYOUT, True, ("a", "b"), False)
    assert isinstance(p, FlatParameter) and isinstance(p, nn.Parameter) and p.requires_grad
    (p * 2).sum().backward()
    with dt.no_grad():
        p.sub_(p.grad)
    assert local.tolist() == [-2, -1, 0, 1] and p._local_shard.tolist() == local.tolist()
    assert not make_flat(local, LAYOUT, False, (), False).requires_grad
