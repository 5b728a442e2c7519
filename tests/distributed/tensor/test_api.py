"""DTensors behave as the wholes that they stand for."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    _StridedShard,
    distribute_tensor,
)
from support.meshes import numbers, on_mesh, spread

pytestmark = pytest.mark.simulated

KINDS = [Shard(0), Shard(1), Replicate(), Partial()]


@on_mesh(2, 2)
def test_any_placement_goes_to_any_other(mesh):
    whole = numbers(5, 7)
    for source in itertools.product(KINDS, repeat=2):
        x = spread(whole, mesh, source)
        for target in itertools.product(KINDS, repeat=2):
            y = x.redistribute(placements=target)
            assert y.placements == target
            if not any(p.is_partial() for p in source):
                assert dt.equal(y.full_tensor(), whole), (source, target)


@on_mesh(3)
def test_pieces_may_be_uneven_and_empty(mesh):
    for n in (1, 2, 4):
        whole = numbers(n, 3)
        x = distribute_tensor(whole, mesh, [Shard(0)])
        assert dt.equal(x.full_tensor(), whole)
        assert dt.equal(
            x.redistribute(placements=[Shard(1)]).to_local(),
            whole.chunk(3, 1)[mesh.get_local_rank()],
        )
        assert dt.equal((x * 2).full_tensor(), whole * 2)


@on_mesh(2)
def test_gradients_go_through_all_crossings(mesh):
    part = numbers(2, 3, seed=mesh.get_rank()).requires_grad_()
    x = DTensor.from_local(part, mesh, [Shard(0)])
    assert isinstance(x, DTensor) and tuple(x.shape) == (4, 3)
    whole = x.full_tensor()
    (whole**2).sum().backward()
    assert dt.allclose(part.grad, 2 * part)

    leaf = distribute_tensor(numbers(4, 3), mesh, [Shard(1)]).requires_grad_()
    (leaf.redistribute(placements=[Replicate()]).to_local() * 3).sum().backward()
    assert leaf.grad.placements == (Shard(1),)
    assert dt.equal(leaf.grad.full_tensor(), dt.full((4, 3), 3.0, dtype=dt.float64))


@on_mesh(2)
def test_second_derivatives(mesh):
    whole = numbers(4, 3)
    x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    y = (x * x * x).full_tensor().sum()
    (g,) = dt.autograd.grad(y, x, create_graph=True)
    (h,) = dt.autograd.grad(g.full_tensor().sum(), x)
    assert dt.allclose(h.full_tensor(), 6 * whole)


@on_mesh(2, 2)
def test_parameters_are_parameters_and_dtensors(mesh):
    p = nn.Parameter(distribute_tensor(numbers(4, 6), mesh, [Shard(0), Shard(1)]))
    assert isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.requires_grad
    module = nn.Module()
    module.weight = p
    assert dict(module.named_parameters()) == {"weight": p}
    (p * p).full_tensor().sum().backward()
    assert p.grad.placements == p.placements and isinstance(p.grad, DTensor)
    assert tuple(p.grad.to_local().shape) == (2, 3)
    other = copy.deepcopy(p)
    assert isinstance(other, nn.Parameter) and isinstance(other, DTensor)
    assert dt.equal(other.full_tensor(), p.full_tensor()) and other.to_local() is not p.to_local()
    like = dt.zeros_like(p)
    assert like.placements == p.placements and not like.full_tensor().any()


@on_mesh(2)
def test_writes_in_place_reach_the_parts(mesh):
    p = nn.Parameter(distribute_tensor(dt.ones(4, 3), mesh, [Shard(0)]))
    with dt.no_grad():
        p.mul_(3)
        p += distribute_tensor(dt.ones(4, 3), mesh, [Replicate()])
        local = p.to_local()
        local += 1
    assert dt.equal(p.full_tensor(), dt.full((4, 3), 5.0))
    p.data = distribute_tensor(dt.zeros(4, 3), mesh, [Shard(0)])
    assert isinstance(p, nn.Parameter) and not p.detach().full_tensor().any()


@on_mesh(2)
def test_from_local_checks_when_asked(mesh):
    r = mesh.get_rank()
    x = DTensor.from_local(dt.full((2,), float(r)), mesh, [Replicate()], run_check=True)
    assert not x.to_local().any()
    with pytest.raises(RuntimeError, match=r"from_local.*has shape"):
        DTensor.from_local(
            dt.ones(2 + r), mesh, [Shard(0)], run_check=True, shape=(6,), stride=(1,)
        )
    uneven = DTensor.from_local(dt.ones(2 - r), mesh, [Shard(0)], shape=(3,), stride=(1,))
    assert dt.equal(uneven.full_tensor(), dt.ones(3))


@on_mesh(2)
def test_mixing_with_plain_tensors_is_an_error_that_names_both(mesh):
    x = distribute_tensor(dt.ones(4, 3), mesh, [Shard(0)])
    with pytest.raises(RuntimeError, match=r"mixed Tensor and DTensor.*\[4, 3\].*\[3\]"):
        x + dt.ones(3)
    assert dt.equal((x + dt.tensor(2.0)).full_tensor(), dt.full((4, 3), 3.0))
    with pytest.raises(RuntimeError, match="full_tensor"):
        np.asarray(x.numpy())


@on_mesh(2)
def test_printing_names_the_placements(mesh):
    x = distribute_tensor(dt.ones(4, 3), mesh, [Shard(0)])
    assert repr(x).startswith("DTensor(local_tensor=tensor([[1.")
    assert "placements=(Shard(dim=0),)" in repr(x)


def test_the_names_of_the_stand_in_are_these():
    from disttrain.compat.torch import build

    modules = build()
    for name in ("tensor", "_tensor"):
        assert modules[f"torch.distributed.{name}"].DTensor is DTensor
        assert modules[f"torch.distributed.{name}.placement_types"].Shard is Shard
    assert modules["torch.distributed.device_mesh"].DeviceMesh is dt.distributed.DeviceMesh


@on_mesh(2, 2)
def test_a_parameter_cut_again_is_strided(mesh):
    """What tensor parallelism cut first and FSDP cuts again: the right axis cuts first."""
    whole = numbers(8, 3)
    plain = spread(whole, mesh, [Shard(0), Shard(0)])
    strided = plain.redistribute(placements=[_StridedShard(0, split_factor=2), Shard(0)])
    at = mesh.get_coordinate()
    assert dt.equal(strided.to_local(), whole.chunk(2)[at[1]].chunk(2)[at[0]])
    assert dt.equal(strided.full_tensor(), whole)
    assert dt.equal((strided * 2 + strided).full_tensor(), whole * 3)
    assert (strided * 2).placements == strided.placements
    assert dt.allclose(strided.sum().full_tensor(), whole.sum())
