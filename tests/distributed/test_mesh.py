"""Device meshes: axes, slices, groups, errors."""

from __future__ import annotations

import pickle

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed import DeviceMesh, init_device_mesh
from disttrain.distributed.mesh import current_mesh

pytestmark = pytest.mark.simulated


def on(size):
    def decorate(body):
        def test():
            dist.simulate(body, size)

        test.__name__ = body.__name__
        return test

    return decorate


@on(8)
def test_axes_slices_and_groups():
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    rank = dist.get_rank()
    assert mesh.get_coordinate() == (rank // 4, rank // 2 % 2, rank % 2)
    assert mesh.size() == 8 and mesh.size(1) == 2 and mesh.ndim == 3
    tp, pp = mesh["tp"], mesh["pp"]
    assert tp.get_group().ranks == [rank - rank % 2, rank - rank % 2 + 1]
    assert tp.get_group() is mesh.get_group("tp") and len(mesh.get_all_groups()) == 3
    assert pp.get_local_rank() == rank // 4 == mesh.get_local_rank("pp")
    two = mesh["dp", "tp"]
    assert two.mesh.tolist() == [[4 * (rank // 4), 4 * (rank // 4) + 1],
                                 [4 * (rank // 4) + 2, 4 * (rank // 4) + 3]]  # fmt: skip
    assert two["tp"] == tp and two["tp"].get_group() is tp.get_group()
    flat = two._flatten("inner")
    assert mesh["inner"].get_group().size == 4 and two._flatten("inner") is flat
    assert mesh["pp", "inner"].shape == (2, 4)
    total = dt.tensor(float(rank))
    dist.all_reduce(total, group=flat.get_group())
    assert total.item() == (6.0 if rank < 4 else 22.0)
    assert mesh == pickle.loads(pickle.dumps(mesh))
    with mesh:
        assert current_mesh() is mesh
    with pytest.raises(RuntimeError, match="no device mesh"):
        current_mesh()


@on(4)
def test_a_mesh_of_some_ranks_and_one_of_groups():
    dist.init_process_group()
    rank = dist.get_rank()
    mesh = DeviceMesh("cpu", [3, 1])
    assert mesh.get_coordinate() == ({3: (0,), 1: (1,)}.get(rank))
    if rank in (1, 3):
        assert mesh.get_group().ranks == [3, 1]
    group = dist.new_group([0, 1])
    if rank < 2:
        again = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("x",))
        assert again.get_group("x") is group and again.mesh.tolist() == [0, 1]


@on(2)
def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="needs 4 ranks and there are 2"):
        init_device_mesh("cpu", (2, 2))
    mesh = init_device_mesh("cpu", (2,))
    with pytest.raises(RuntimeError, match="without mesh_dim_names"):
        mesh["dp"]
    with pytest.raises(RuntimeError, match="same length"):
        init_device_mesh("cpu", (2,), mesh_dim_names=("a", "b"))
    with pytest.raises(RuntimeError, match="unique"):
        init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "a"))
    named = init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"))
    with pytest.raises(KeyError, match="Invalid mesh_dim_name"):
        named["c"]
    with pytest.raises(KeyError, match="order"):
        named["b", "a"]
    with pytest.raises(RuntimeError, match="2 dimensions"):
        named.get_group()
    with pytest.raises(ValueError, match="different ranks"):
        DeviceMesh("cpu", [0, 0])
