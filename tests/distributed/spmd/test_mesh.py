"""Devices in a grid; the mesh of a block."""

from __future__ import annotations

import pytest

from disttrain import distributed as dist
from disttrain.distributed.spmd import Device, Mesh, devices
from disttrain.distributed.spmd.mesh import around, grid_of
from disttrain.errors import ConfigError
from support.simulated import on_ranks


def of(*shape, names=("x", "y")):
    count = 1
    for n in shape:
        count *= n
    return Mesh(grid_of([Device(i, 0) for i in range(count)], shape), names[: len(shape)])


def test_what_it_is():
    mesh = of(2, 3)
    assert dict(mesh.shape) == {"x": 2, "y": 3} and mesh.size == 6 and not mesh.empty
    assert mesh.device_ids.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert mesh == of(2, 3) and hash(mesh) == hash(of(2, 3)) and mesh != of(3, 2)
    assert not mesh.is_multi_process
    assert mesh.over(()) == {"x": 2, "y": 3} and mesh.over({"y"}) == {"y": 3}
    with pytest.raises(ConfigError, match=r"devices.ndim == 2 and len\(axis_names\) == 1"):
        Mesh(mesh.devices, ("x",))
    with pytest.raises(ConfigError, match="must be >= the product of mesh_shape"):
        Mesh.of((4096,), ("x",), None)


def test_a_block_has_a_mesh():
    assert around() is None
    with of(2) as outer, of(3) as inner:
        assert around() is inner is not outer
    assert around() is None
    mesh = of(2)
    mesh.begin()
    assert around() is mesh
    mesh.__exit__()


def test_over_ranks_it_is_a_device_mesh_made_once():
    def body():
        mesh = Mesh.of((2, 2), ("x", "y"), None)
        ranks = mesh.over(())
        assert ranks is Mesh.of((2, 2), ("x", "y"), None).ranks()
        assert mesh.local_devices == [devices()[dist.get_rank()]] and mesh.is_multi_process
        with pytest.raises(ConfigError, match="over ranks"):
            mesh.over({"x"})
        return ranks.shape

    assert on_ranks(body, 4) == [(2, 2)] * 4
