"""JAX's spelling of placements: there and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from disttrain.distributed.tensor.placements import Partial, Replicate, Shard
from disttrain.distributed.tensor.specs import NamedSharding, P, spec_of
from disttrain.errors import PlacementError

NAMES = ("dp", "tp")
MESH: Any = SimpleNamespace(
    ndim=2, axis=lambda name: NAMES.index(name), axis_names=NAMES, mesh_dim_names=NAMES
)


def tensor(*placements: Any, ndim: int = 2) -> Any:
    return SimpleNamespace(device_mesh=MESH, placements=placements, ndim=ndim)


@pytest.mark.parametrize(
    ("spec", "placements"),
    [
        (P(), (Replicate(), Replicate())),
        (P("dp"), (Shard(0), Replicate())),
        (P(None, "dp"), (Shard(1), Replicate())),
        (P("tp", "dp"), (Shard(1), Shard(0))),
        (P(("dp", "tp")), (Shard(0), Shard(0))),
    ],
)
def test_there_and_back(spec, placements):
    assert NamedSharding(MESH, spec).placements == placements
    assert spec_of(tensor(*placements)) == spec


def test_dimensions_that_are_whole_at_the_end_are_not_named():
    assert spec_of(tensor(Shard(0), Replicate(), ndim=4)) == P("dp")
    assert NamedSharding(MESH, P("dp", None)).placements == (Shard(0), Replicate())
    assert repr(P("dp", None)) == "PartitionSpec('dp', None)"


@pytest.mark.parametrize(
    ("spec", "match"), [(P(("tp", "dp")), "order of the mesh"), (P("dp", "dp"), "named twice")]
)
def test_what_cannot_be_cut_so_is_refused(spec, match):
    with pytest.raises(PlacementError, match=match):
        _ = NamedSharding(MESH, spec).placements


def test_partial_tensors_have_no_word():
    with pytest.raises(PlacementError, match="redistribute"):
        spec_of(tensor(Partial(), Replicate()))
