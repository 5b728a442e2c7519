"""Which block of an array each device has."""

from __future__ import annotations

import pickle

import pytest

from disttrain.distributed.spmd import Device, Indivisible, Mesh, OneDevice, OverMesh, Spec
from disttrain.distributed.spmd.layouts import NamedTwice
from disttrain.distributed.spmd.mesh import grid_of
from disttrain.errors import ConfigError

MESH = Mesh(grid_of([Device(i, 0) for i in range(8)], (2, 4)), ("x", "y"))


def lay(*dims):
    return OverMesh(MESH, Spec(*dims))


def test_specs_are_plain():
    assert Spec("x", None) != Spec("x")
    assert Spec(("x",), ()) == Spec("x", None)
    assert (Spec("x") + ("y",)).axes() == ["x", "y"]
    assert (("x",) + Spec("y")).names(0) == ("x",)
    assert pickle.loads(pickle.dumps(Spec("x", ("y", "z")))) == Spec("x", ("y", "z"))
    assert hash(Spec("x")) == hash(Spec("x")) and list(Spec("x")) == ["x"]


def test_blocks():
    blocks = lay("x", "y").blocks((4, 8))
    assert blocks[MESH.devices[1, 2]] == (slice(2, 4), slice(4, 6))
    assert lay(("y", "x")).blocks((8,))[MESH.devices[1, 2]] == (slice(5, 6),)
    assert lay(None, "x").blocks((3, 2))[MESH.devices[1, 0]] == (slice(None), slice(1, 2))
    assert lay("x").shard_shape((4, 6)) == (2, 6)
    assert lay().is_fully_replicated and not lay("x").is_fully_replicated
    assert lay("x").is_equivalent_to(lay("x", None), 2)
    assert not lay("x").is_equivalent_to(lay("y"), 1)
    one = OneDevice(MESH.devices[0, 0])
    assert one.blocks((2,)) == {one.device: (slice(None),)} and one.num_devices == 1
    assert lay("x") == lay("x") and lay("x") != lay("y") and one != lay("x")


def test_what_cannot_be():
    with pytest.raises(ConfigError, match="Resource axis: z"):
        lay("z")
    with pytest.raises(NamedTwice, match="duplicate entries for `x`"):
        lay("x", "x")
    with pytest.raises(
        Indivisible, match="axis 0 is partitioned 2 times, but the dimension size is 3"
    ):
        lay("x").check((3,))
    with pytest.raises(ConfigError, match="rank at least 2"):
        lay("x", "y").check((4,))
