"""New DTensors: ``zeros``, ``ones``, ``empty``, ``full``, ``rand``, ``randn``, each with a mesh and
placements. Memory is taken for this rank's part alone; random numbers are those that one process
would draw for the whole (see ``random``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.device.memory import memory_of
from ...core.annotations import DTypeLike
from ...core.gate import Primitive
from ...core.random import generator_of
from ...core.tensor import wrap
from ...core.types import dtypes
from ...core.types.device import at, located, usable
from ...errors import PlacementError
from ...ops.functions.args import size as as_size
from ...ops.primitives.random import draw_normal, draw_uniform
from ..mesh import DeviceMesh, current_mesh
from .array import DistArray
from .placements import local_shape, normalized


def _made(
    where: str, make: Any, sizes: tuple, dtype: DTypeLike | None, mesh: DeviceMesh | None,
    placements: list | None, requires_grad: bool,
) -> Any:  # fmt: skip
    shape = as_size(sizes, where, None)
    mesh = mesh or current_mesh()
    wanted = normalized(placements, len(shape), mesh.ndim, where)
    if any(p.is_partial() for p in wanted):
        raise PlacementError(
            f"{where}: {wanted} given; a new tensor can be Shard or Replicate, and has no parts to "
            "be reduced: redistribute() one to Partial afterwards"
        )
    kind = (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).np
    part = local_shape(shape, mesh.ranks.shape, mesh.get_coordinate(), wanted)
    there = located(usable(mesh.device_type)) if mesh.device_type != "cpu" else None
    local = np.empty(part, kind) if there is None else there.make(lambda xp: xp.empty(part, kind))
    out = wrap(make(DistArray(local, mesh, wanted, shape)))
    return out.requires_grad_() if requires_grad else out


def _filled(value: object) -> Any:
    def make(array: DistArray) -> DistArray:
        memory = memory_of(array)
        with memory.here():
            memory.raw(array.local).fill(value)
        return array

    return make


def zeros(
    *size: object, requires_grad: bool = False, dtype: DTypeLike | None = None,
    layout: object = None, device_mesh: DeviceMesh | None = None, placements: Any = None,
) -> Any:  # fmt: skip
    """A DTensor of ``size`` full of zeros, replicated unless ``placements`` say otherwise."""
    return _made("zeros", _filled(0), size, dtype, device_mesh, placements, requires_grad)


def ones(
    *size: object,
    requires_grad: bool = False,
    dtype: DTypeLike | None = None,
    layout: object = None,
    device_mesh: DeviceMesh | None = None,
    placements: Any = None,
) -> Any:
    """As ``zeros``, full of ones."""
    return _made("ones", _filled(1), size, dtype, device_mesh, placements, requires_grad)


def empty(
    *size: object, requires_grad: bool = False, dtype: DTypeLike | None = None,
    layout: object = None, device_mesh: DeviceMesh | None = None, placements: Any = None,
) -> Any:  # fmt: skip
    """As ``zeros``, with no values yet."""
    return _made("empty", lambda a: a, size, dtype, device_mesh, placements, requires_grad)


def full(
    size: object, fill_value: Any, *, requires_grad: bool = False, dtype: DTypeLike | None = None,
    layout: object = None, device_mesh: DeviceMesh | None = None, placements: Any = None,
) -> Any:  # fmt: skip
    """As ``zeros``, full of ``fill_value``; without ``dtype`` of the type that a tensor of that
    number has."""
    if dtype is None:
        dtype = _type_of(fill_value)
    return _made(
        "full", _filled(fill_value), (size,), dtype, device_mesh, placements, requires_grad
    )


def _type_of(value: int) -> Any:
    if isinstance(value, bool):
        return dtypes.bool
    return dtypes.int64 if isinstance(value, int) else dtypes.get_default_dtype()


def _drawn(prim: Primitive) -> Any:
    def make(array: DistArray) -> DistArray:
        how = {
            "shape": array.shape,
            "dtype": array.dtype,
            "generator": generator_of(at(*array.place)),
        }
        return array.drawn(prim, how)

    return make


def rand(
    *size: object, requires_grad: bool = False, dtype: DTypeLike | None = None,
    layout: object = None, device_mesh: DeviceMesh | None = None, placements: Any = None,
) -> Any:  # fmt: skip
    """Uniform on [0, 1). Every rank of the mesh calls it."""
    return _made("rand", _drawn(draw_uniform), size, dtype, device_mesh, placements, requires_grad)


def randn(
    *size: object, requires_grad: bool = False, dtype: DTypeLike | None = None,
    layout: object = None, device_mesh: DeviceMesh | None = None, placements: Any = None,
) -> Any:  # fmt: skip
    """Normal with mean 0 and variance 1. Every rank of the mesh calls it."""
    return _made("randn", _drawn(draw_normal), size, dtype, device_mesh, placements, requires_grad)
