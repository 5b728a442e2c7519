"""Pictures of layouts."""

from __future__ import annotations

import pytest

from disttrain.distributed.spmd import Device, Mesh, OneDevice, OverMesh, Spec
from disttrain.distributed.spmd.drawing import drawn
from disttrain.distributed.spmd.mesh import grid_of
from disttrain.errors import ConfigError

MESH = Mesh(grid_of([Device(i, 0) for i in range(8)], (2, 4)), ("x", "y"))


def test_blocks_are_boxes():
    lines = drawn((4, 8), OverMesh(MESH, Spec("x"))).splitlines()
    assert lines[2] == "│CPU 0,1,2,3│" and lines[7] == "│CPU 4,5,6,7│" and len(lines) == 11
    lines = drawn((4, 8), OverMesh(MESH, Spec("x", "y"))).splitlines()
    assert lines[0] == "┌" + "┬".join(["─" * 10] * 4) + "┐"
    assert lines[2] == "│  CPU 0   │  CPU 1   │  CPU 2   │  CPU 3   │"
    assert drawn((8,), OverMesh(MESH, Spec("x"))).count("CPU") == 2
    assert drawn((2, 2), OneDevice(Device(3, 0))).count("CPU 3") == 1
    with pytest.raises(ConfigError, match="3 dimensions"):
        drawn((1, 2, 3), OneDevice(Device(0, 0)))
