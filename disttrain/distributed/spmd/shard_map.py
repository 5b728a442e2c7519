"""``shard_map``: a function of shards over a mesh, whose collectives name the mesh's axes.

Each axis of the mesh is a named axis (``func``): over a ``DeviceMesh`` its ranks, which compute
one shard each (``func.spread``); over a mesh of sizes alone, in one process, the examples of a
``vmap``, all shards at once. Both mean the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import tree
from ...core.gate import Tracer
from ...core.tensor import Tensor
from ...errors import ConfigError
from ...func import batch_dims
from ...func.levels import settle
from ...func.spread import Ranks
from ...func.vmap import Batch
from ...ops.functions import collectives as verbs
from ...ops.functions.collectives import How
from ...ops.functions.views.shapes import movedim, permute, reshape, unsqueeze
from ...ops.functions.views.split import select
from ...ops.primitives.batching import merge, split
from ..mesh import DeviceMesh
from ..tensor import DTensor, NamedSharding, PartitionSpec
from .misfits import Told, axes_of, names_of

Mesh = DeviceMesh | Mapping[str, int]  # ranks, or how many shards along each axis


def shard_map(
    func: Callable, mesh: Mesh, in_specs: Any, out_specs: Any, *, varying: bool = True,
    check: bool = True,
) -> Callable:  # fmt: skip
    """``func`` of shards as a function of whole tensors. ``mesh``: a ``DeviceMesh``, every rank of
    which calls this (DTensors, or plain tensors that are equal on all ranks, come in; DTensors go
    out), or sizes by name: all shards in one process.

    ``in_specs``, ``out_specs``: a ``PartitionSpec`` for each argument and result, or trees of them:
    which axes cut which dimension. What no axis of a spec cuts is one for all along it; results
    must be so (``check=False``: are taken to be so). ``varying``: see ``spread``.
    """

    @functools.wraps(func)
    def run(*args: Any) -> Any:
        leaves, rebuild = tree.flatten(args, with_none=True)
        specs = _specs("in_specs", in_specs, args)
        form: list = []

        def flat(*values: Any) -> list:
            outs, unflatten = tree.flatten(func(*rebuild(list(values))), with_none=True)
            form[:] = [unflatten]
            return outs

        def named(outs: list) -> list:
            return _specs("out_specs", out_specs, form[0](outs))

        outs = mapped(flat, mesh, leaves, specs, named, varying, check)
        return form[0](outs)

    return run


class _One:
    """A spec as a leaf of a tree (it is a tuple itself)."""

    def __init__(self, spec: PartitionSpec) -> None:
        self.spec = spec


def _specs(where: str, specs: Any, value: Any) -> list:
    found = batch_dims.matched(_leaves(specs), value)
    if found is None or not all(isinstance(one, _One) for one in found):
        raise ConfigError(
            f"shard_map: {where}={specs!r} is given for {tree.structure(value)}; needed is a "
            "PartitionSpec for all, or a tree of them of the same form"
        )
    return [one.spec for one in found]


def _leaves(specs: Any) -> Any:
    if isinstance(specs, PartitionSpec):
        return _One(specs)
    if isinstance(specs, dict):
        return {k: _leaves(v) for k, v in specs.items()}
    return type(specs)(map(_leaves, specs)) if isinstance(specs, (list, tuple)) else specs


def mapped(
    func: Callable, mesh: Mesh, leaves: Sequence, specs: Sequence, out_specs: Callable,
    varying: bool, check: bool, name: str = "func",
) -> list:  # fmt: skip
    """``func`` of a list of shards, which gives a list, on whole tensors; ``out_specs(results)``
    says, while it runs, how each of those lies. ``name``: of the function, in messages."""
    told = Told(name, mesh)
    pairs = list(enumerate(zip(leaves, specs, strict=True)))
    for i, (x, spec) in pairs:
        told.check_argument(i, x, spec)
    levels = _levels(mesh, varying)
    found: list = []

    def inside(i: int, values: list) -> list:
        if i == len(levels):
            outs = list(func(*values))
            found[:] = out_specs(outs)
            for out, spec in zip(outs, found, strict=True):
                told.check_result(out, spec)
            return outs
        level = levels[i]
        with level.running():
            inner = [
                level.wrap(v, 0) if isinstance(v, Tensor) and level.axis_name in axes_of(s) else v
                for v, s in zip(values, specs, strict=True)
            ]
            outs = settle(inside(i + 1, inner))
            return [_left(told, level, o, s, check) for o, s in zip(outs, found, strict=True)]

    given = [_cut(x, mesh, s) if isinstance(x, Tensor) else x for _, (x, s) in pairs]
    outs = zip(inside(0, given), found, strict=True)
    return [_joined(o, mesh, s) if isinstance(o, Tensor) else o for o, s in outs]


def _levels(mesh: Mesh, varying: bool) -> list[Any]:
    if isinstance(mesh, DeviceMesh):
        return [Ranks(mesh.get_group(name), name, varying) for name in mesh.axis_names]
    return [Batch(size, "different", name, varying) for name, size in mesh.items()]


def _left(told: Told, level: Any, out: Any, spec: Any, check: bool) -> Any:
    """A result outside of one axis: its shards in front, or the one that all have."""
    if not isinstance(out, Tensor):
        return out
    if level.axis_name in axes_of(spec):
        return level.leave(out, 0)
    if not level.owns(out):
        return out
    if check and level.differs(out):
        raise told.differs(spec, level.axis_name)
    value: Any = out
    apart = value.bdim is not None and not isinstance(level, Ranks)
    return select(value.inner, value.bdim, 0) if apart else value.inner


# --- whole tensors and shards ---------------------------------------------------------------------
def _cut(x: Any, mesh: Mesh, spec: Any) -> Any:
    """This rank's shard; in one process all shards, along dimensions in front, in the order of the
    mesh."""
    if isinstance(mesh, DeviceMesh):
        if isinstance(x, DTensor):
            return x.redistribute(mesh, _placements(mesh, spec)).to_local()
        return _own_shard(x, mesh, spec)
    dims: list[tuple[Any, int]] = []
    for dim, size in enumerate(x.shape):
        names = names_of(spec[dim]) if spec and dim < len(spec) else ()
        count = math.prod(mesh[n] for n in names)
        dims += [(n, mesh[n]) for n in names] + [(None, size // count)]
    front = [i for name in mesh for i, (n, _) in enumerate(dims) if n == name]
    rest = [i for i, (n, _) in enumerate(dims) if n is None]
    if not front:
        return x
    return permute(reshape(x, tuple(n for _, n in dims)), (*front, *rest))


def _own_shard(x: Any, mesh: DeviceMesh, spec: Any) -> Any:
    """This rank's shard of what all ranks have the whole of."""
    for dim, names in enumerate(spec or ()):
        for name in names_of(names):
            parts = movedim(split(x, mesh.size(mesh.axis(name)), dim), dim, 0)
            x = verbs.OwnRow.on(mesh.get_group(name), How(), parts)[0]
    return x


def _whole(x: Any, mesh: DeviceMesh, spec: Any) -> Any:
    """The whole, on every rank, of what each has a shard of."""
    for dim, names in enumerate(spec or ()):
        for name in reversed(names_of(names)):
            rows = verbs.Joined.on(mesh.get_group(name), How(), unsqueeze(x, 0))
            x = merge(movedim(rows, 0, dim), dim)
    return x


def _joined(x: Any, mesh: Mesh, spec: Any) -> Any:
    """The whole of this rank's shard (a DTensor, but inside of transforms), or of all shards."""
    if isinstance(mesh, DeviceMesh) and isinstance(x, Tracer):
        return _whole(x, mesh, spec)
    if isinstance(mesh, DeviceMesh):
        return DTensor.from_local(x, mesh, _placements(mesh, spec))
    front = [name for name in mesh if name in axes_of(spec)]
    if not front:
        return x
    order: list[int] = []
    shape: list[int] = []
    for dim, size in enumerate(x.shape[len(front) :]):
        names = names_of(spec[dim]) if dim < len(spec) else ()
        order += [front.index(n) for n in names] + [len(front) + dim]
        shape.append(size * math.prod(mesh[n] for n in names))
    return reshape(permute(x, tuple(order)), tuple(shape))


def _placements(mesh: DeviceMesh, spec: Any) -> tuple:
    return NamedSharding(mesh, PartitionSpec(*(spec or ()))).placements
