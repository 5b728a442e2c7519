"""What processes tell each other."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.spmd import Mesh, OverMesh, Spec, hosts, lay
from support.simulated import on_ranks


def test_alone():
    assert hosts.everybody(3) == [3]
    assert hosts.gathered(np.ones(2)).shape == (1, 2)
    hosts.check_equal([np.ones(2)])


def test_together():
    def body():
        me = dist.get_rank()
        assert hosts.everybody(me) == [0, 1]
        assert hosts.gathered(np.full(1, me), tiled=True).tolist() == [0, 1]
        assert hosts.from_one([np.full(1, me)])[0].tolist() == [0]
        assert hosts.from_one([np.full(1, me)], me == 1)[0].tolist() == [1]
        hosts.check_equal([np.ones(1)])
        whole = lay(dt.arange(4.0), OverMesh(Mesh.of((2,), ("x",), None), Spec("x")))
        assert hosts.gathered(whole).tolist() == [0.0, 1.0, 2.0, 3.0]
        if me:
            with pytest.raises(AssertionError, match="here Expected"):
                hosts.check_equal([np.full(1, me)], "here")
        else:
            hosts.check_equal([np.full(1, me)], "here")

    on_ranks(body)
