"""JAX's meshes, shardings and arrays on devices: what they say, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import numpy as jnp
from disttrain.compat.jax import sharding
from disttrain.compat.jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from disttrain.compat.jax.sharding import PartitionSpec as P
from disttrain.context import Rank, attach
from disttrain.distributed.spmd import simulate


@pytest.fixture(autouse=True)
def eight():
    with attach(Rank()):
        simulate(8)
        yield


def grid():
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))


def test_they_print_as_jax_does():
    mesh = grid()
    assert repr(mesh) == "Mesh(axis_sizes=(2, 4), axis_names=('x', 'y'), axis_types=(Auto, Auto))"
    named = NamedSharding(mesh, P("x", None))
    text = "Mesh('x': 2, 'y': 4, axis_types=(Auto, Auto))"
    assert repr(named) == f"NamedSharding(mesh={text}, spec=P('x', None), memory_kind=device)"
    assert repr(P(("a", "b"))) == "P(('a', 'b'),)" and repr(P()) == "P()"
    one = jnp.ones(2).sharding
    assert repr(one) == "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)"
    assert str(jax.devices()[3]) == "cpu:3"
    assert mesh.shape_tuple == (("x", 2), ("y", 4)) and mesh.local_mesh == mesh
    explicit = jax.make_mesh((8,), ("x",), (AxisType.Explicit,))
    assert explicit.axis_types == (AxisType.Explicit,) and explicit != Mesh(jax.devices(), "x")


def test_arrays_know_where_they_lie():
    mesh = grid()
    x = jax.device_put(jnp.arange(8.0).reshape(4, 2), NamedSharding(mesh, P("x")))
    assert x.sharding == NamedSharding(mesh, P("x")) and x.committed and x.is_fully_addressable
    assert not x.is_fully_replicated and len(x.devices()) == 8 and x.device == x.sharding
    shards = x.addressable_shards
    assert len(shards) == 8 and shards[5].replica_id == 1
    assert shards[0].index == (slice(0, 2), slice(None))
    assert repr(shards[0]).startswith("Shard(device=CpuDevice(id=0), index=(slice(0, 2, None), ")
    assert np.asarray(x.addressable_data(4)).tolist() == [[4.0, 5.0], [6.0, 7.0]]
    plain = jnp.ones(2)
    assert not plain.committed and plain.device == jax.devices()[0]
    there = jax.device_put(plain, jax.devices()[3])
    assert there.sharding == SingleDeviceSharding(jax.devices()[3])
    tree = jax.device_put({"a": plain, "b": np.ones(2)}, NamedSharding(mesh, P()))
    assert tree["b"].sharding.is_fully_replicated


def test_arrays_of_parts():
    named = NamedSharding(grid(), P("x"))
    whole = np.arange(8.0).reshape(4, 2)
    made = jax.make_array_from_callback((4, 2), named, lambda index: whole[index])
    assert np.array_equal(made, whole) and made.dtype == np.float32
    parts = [whole[index] for index in named.addressable_devices_indices_map((4, 2)).values()]
    made = jax.make_array_from_single_device_arrays((4, 2), named, parts)
    assert np.array_equal(made, whole) and made.sharding == named
    assert np.array_equal(jax.make_array_from_process_local_data(named, whole), whole)
    with pytest.raises(ValueError, match="Expected 8 per-device arrays"):
        jax.make_array_from_single_device_arrays((4, 2), named, parts[:2])


def test_jit_takes_and_gives_shardings():
    mesh = grid()
    rows, cols = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P(None, "y"))
    f = jax.jit(
        lambda a, b: a @ b,
        in_shardings=(rows, cols),
        out_shardings=NamedSharding(mesh, P("x", "y")),
    )
    a, b = np.ones((4, 2), "f4"), np.ones((2, 8), "f4")
    for _ in range(2):
        out = f(a, b)
        assert out.sharding.spec == P("x", "y") and np.array_equal(out, a @ b)
    with mesh:
        g = jax.jit(
            lambda x: sharding.with_sharding_constraint(x, P("x")) + 1, out_shardings=P("x")
        )
        assert g(jnp.ones(4)).sharding == NamedSharding(mesh, P("x"))
    h = jax.jit(lambda x, n: x * n, static_argnums=1, in_shardings=NamedSharding(mesh, P("x")))
    assert np.array_equal(h(jnp.ones(4), 2), [2.0] * 4)
    with pytest.raises(ValueError, match="does not support kwargs when in_shardings"):
        h(jnp.ones(4), n=2)
    with sharding.use_mesh(mesh):
        assert sharding.get_mesh() == mesh
    assert sharding.get_mesh().empty
    with jax.set_mesh(mesh):
        out = sharding.with_sharding_constraint(jnp.ones(4), P("y"))
        assert out.sharding == NamedSharding(mesh, P("y"))


def test_constraints_pass_through_transforms():
    named = NamedSharding(grid(), P("x"))
    f = lambda x: (sharding.with_sharding_constraint(x, named) ** 2).sum()
    assert np.array_equal(jax.grad(f)(jnp.ones(4)), [2.0] * 4)
    assert np.array_equal(jax.vmap(jax.grad(f))(jnp.ones((3, 4))), np.full((3, 4), 2.0))
    assert np.array_equal(jax.jit(jax.grad(f))(jnp.ones(4)), [2.0] * 4)


REFUSED = {
    "axis": (lambda m: NamedSharding(m, P("k")), ValueError, "Resource axis: k of P.'k',. is not"),
    "no spec": (lambda m: NamedSharding(m, ("x",)), TypeError, "not a PartitionSpec"),
    "rank": (
        lambda m: jax.device_put(jnp.ones(4), NamedSharding(m, P("x", "y"))),
        ValueError,
        "only valid for values of rank at least 2, but was applied to a value of rank 1",
    ),
    "uneven": (
        lambda m: jax.jit(lambda x: x, in_shardings=NamedSharding(m, P("x")))(jnp.ones(3)),
        ValueError,
        r"axis 0 is partitioned 2 times, but the dimension size is 3 .full shape: .3,., per-dim",
    ),
    "uneven result": (
        lambda m: jax.jit(lambda x: x, out_shardings=NamedSharding(m, P("x")))(jnp.ones(3)),
        ValueError,
        "is partitioned 2 times",
    ),
    "no mesh": (
        lambda m: sharding.with_sharding_constraint(jnp.ones(4), P("x")),
        RuntimeError,
        "with_sharding_constraint requires a non-empty mesh in context if you are passing",
    ),
    "no mesh for jit": (
        lambda m: jax.jit(lambda x: x, in_shardings=P("x"))(jnp.ones(4)),
        RuntimeError,
        "jit requires a non-empty mesh in context if you are passing `PartitionSpec`s to in_shard",
    ),
    "count": (
        lambda m: jax.jit(lambda x, y: x, in_shardings=(NamedSharding(m, P()),))(1.0, 2.0),
        ValueError,
        "is the wrong length: got a tuple or list of length 1 for an args tuple of length 2",
    ),
    "devices": (
        lambda m: jax.make_mesh((16,), ("i",)),
        ValueError,
        r"Number of devices 8 must be >= the product of mesh_shape \(16,\)",
    ),
    "names": (lambda m: Mesh(m.devices, ("x",)), ValueError, "devices.ndim == 2"),
    "no device": (lambda m: jax.device_put(jnp.ones(2), "gpu"), ValueError, "invalid device"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    do, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        do(grid())
