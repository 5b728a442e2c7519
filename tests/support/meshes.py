"""Run test bodies on simulated ranks with a mesh; tensors under any placements."""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt
from disttrain import core
from disttrain import distributed as dist
from disttrain.distributed.tensor import (
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)


def run_on(shape: tuple, body: Any, *args: Any) -> list:
    """``body(mesh, *args)`` on as many simulated ranks as the mesh has; their results."""

    def rank() -> Any:
        dist.init_process_group()
        names = ("dp", "tp", "pp")[: len(shape)]
        result = body(init_device_mesh("cpu", shape, mesh_dim_names=names), *args)
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, int(np.prod(shape))).results


def on_mesh(*shape: int) -> Any:
    """Decorates a test whose argument is the mesh."""

    def decorate(body: Any) -> Any:
        def test() -> None:
            run_on(shape, body)

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorate


def numbers(*shape: int, seed: int = 0) -> dt.Tensor:
    return core.wrap(np.random.default_rng(seed).normal(size=shape))


def spread(whole: dt.Tensor, mesh: Any, placements: Any) -> Any:
    """``whole`` with the placements given, partial ones too."""
    first = [Replicate() if p.is_partial() else p for p in placements]
    return distribute_tensor(whole, mesh, first).redistribute(placements=placements)


def some_placements(rng: np.random.Generator, a: Any, axes: int) -> list:
    """Random placements for an array; partial sums for floating types only."""
    kinds = [*map(Shard, range(a.ndim)), Replicate()]
    if a.dtype.kind == "f":
        kinds.append(Partial())
    return [kinds[int(rng.integers(len(kinds)))] for _ in range(axes)]
