"""How a primitive runs on distributed arrays: choose placements, move, compute on local parts.

The gate's ``Primitive.compute`` ends here for every operation on DTensors, those of gradients too.
What the parts are cut by is decided in ``choice``; this performs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import context
from ...backends.array_kinds import ArrayKind
from ...backends.device.memory import common, memory_of
from ...errors import PlacementError
from ...ops.layouts import Layout, Rewrite, layout_of
from ...trace import warn
from .choice import REPLICATE, Choice
from .cut_classes import ANSWERS
from .fixed import layout_for, needed
from .fixed import perform as in_pieces
from .mixing import given_by_program
from .movement import redistribute
from .random import in_step
from .runs import MOST, Run, decide, key_of
from .spread import Spread
from .viewing import fresh, note_view
from .writing import run_write

SLOT = "distributed.tensor"


class _State:
    """Per rank: which operations were said to have no rule; how many blocks let plain arrays be
    taken for replicated ones."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        self.implicit = 0


def state() -> _State:
    return context.current().slot(SLOT, _State)


def run_primitive(prim: Any, arrays: list, params: dict) -> Any:
    """The result of ``prim`` on ``arrays``, of which one or more are distributed."""
    if prim.kinds:
        return prim.forward(*[fresh(a) if isinstance(a, Spread) else a for a in arrays], **params)
    arrays = _on_one_mesh(prim, arrays)
    if prim.mutates:
        return run_write(prim, arrays, params)
    answer = ANSWERS.get(prim.name)
    if answer is not None:
        result = answer(arrays, params)
        if result is not None:
            return result
    mesh = next(a.mesh for a in arrays if isinstance(a, Spread))
    key = key_of(prim, arrays, params)
    fixed = mesh.virtual_shards
    if fixed and key is not None:
        key = (fixed, *key)
    run = None if key is None else mesh.memory.get(key)
    if run is None:
        layout = layout_of(prim, arrays, params)
        if layout is None:
            layout = _without_rule(prim, arrays)
        run = layout
        if layout.__class__ is not Rewrite:
            layout = layout_for(prim, layout) if fixed else layout
            run = decide(prim, arrays, params, mesh, layout)
        if key is not None:
            if len(mesh.memory) > MOST:
                mesh.memory.clear()
            mesh.memory[key] = run
    if run.__class__ is Rewrite:
        return run.run(*arrays, **params)
    return _perform(prim, arrays, params, run, mesh)


def _on_one_mesh(prim: Any, arrays: list) -> list:
    """``arrays`` with plain ones, where they are allowed, as replicated ones."""
    first = next(a for a in arrays if isinstance(a, Spread))
    out = []
    for i, a in enumerate(arrays):
        if isinstance(a, Spread):
            if a.mesh is not first.mesh and a.mesh != first.mesh:
                raise PlacementError(
                    f"{prim.name}: DTensors on two meshes were given, {first.mesh} and {a.mesh}; "
                    "an operation needs one mesh: bring one over with to_local() or full_tensor() "
                    "and distribute_tensor()"
                )
            a = fresh(a)
        elif isinstance(a, (np.ndarray, ArrayKind)):
            if a.ndim and not state().implicit and given_by_program(first.tensor_class):
                raise PlacementError(_mixed(prim, arrays, i, first))
            a = first.__class__(a, first.mesh, (REPLICATE,) * first.mesh.ndim, a.shape)
        out.append(a)
    return out


def _mixed(prim: Any, arrays: list, i: int, first: Spread) -> str:
    names = prim.args or [f"argument {k}" for k in range(len(arrays))]
    at = next(k for k, a in enumerate(arrays) if isinstance(a, Spread))
    plain = arrays[i]
    return (
        f"{prim.name.strip('_')}: got mixed Tensor and DTensor: {names[at]} is a DTensor of shape "
        f"{list(first.shape)} with {first.placements}, {names[i]} a plain Tensor of shape "
        f"{list(plain.shape)}; all must be DTensors: convert the plain one with "
        "distribute_tensor(t, mesh, placements) or DTensor.from_local(t, mesh, placements), or "
        "take the other's .to_local(), or run the block under implicit_replication(). (A parameter "
        "that fully_shard has sharded is whole only while the module that was given to it runs: "
        "call that one and not a part of it, shard the part, too, or call unshard() before)"
    )


def _without_rule(prim: Any, arrays: list) -> Layout:
    """Everything whole; said once per operation and rank."""
    told = state().told
    spread = [a for a in arrays if isinstance(a, Spread)]
    if prim.name not in told and any(p != REPLICATE for a in spread for p in a.placements):
        told.add(prim.name)
        warn(
            f"DTensor: {prim.name.strip('_')} has no rule for sharded tensors, so its arguments "
            "are made whole on every rank first, and so is its result; this is said once",
        )
    ins = tuple((None,) * a.ndim if isinstance(a, Spread) else None for a in arrays)
    return Layout(ins, ())


def _perform(prim: Any, arrays: list, params: dict, run: Run, mesh: Any) -> Any:
    """Move the arguments to where ``run`` wants them, and compute on the pieces."""
    layout, choice, cuts, full, local_params, empty = run
    if prim.random:
        drawn_from = in_step(mesh, params["generator"])
        local_params = {**local_params, "generator": drawn_from}
    moved = False
    pieces = []
    source: Any = None
    for a, want in zip(arrays, choice.ins, strict=True):
        if not isinstance(a, Spread):
            pieces.append(a)
            continue
        source = a if source is None else source
        if a.placements != want:
            moved = True
            a = redistribute(a, want)
        pieces.append(a.local)
    if mesh.get_coordinate() is None:
        return _outside(prim, arrays, params, choice, source.__class__, mesh)
    outs = choice.outs
    if mesh.virtual_shards and needed(prim, run, pieces):
        result, outs = in_pieces(prim, pieces, local_params, run, mesh)
    elif layout.local is not None:
        result = layout.local(prim, pieces, local_params, cuts)
    elif empty:
        result = _of_nothing(prim, pieces, local_params)
    else:
        result = prim.compute(pieces, local_params)
    made = []
    for i, local in enumerate(result if prim.multi else (result,)):
        if local.__class__ is not np.ndarray and not isinstance(local, ArrayKind):
            local = np.asarray(local)
        shape = local.shape
        placements = outs[i] if layout.outs else (REPLICATE,) * mesh.ndim
        if cuts and layout.outs:
            labels = zip(layout.outs[i], shape, strict=True)
            shape = full.get(i) or tuple([cuts[k].full if k in cuts else n for k, n in labels])
        if not prim.view and local.__class__ is not np.ndarray:
            local = _in_order(local)
        elif not prim.view and not local.flags.c_contiguous:
            local = np.ascontiguousarray(local)
        out = source.__class__(local, mesh, placements, shape)
        if prim.view:
            note_view(out, source, prim, params, i if prim.multi else None, moved)
        made.append(out)
    return tuple(made) if prim.multi else made[0]


def _of_nothing(prim: Any, pieces: list, params: dict) -> Any:
    """Where a piece is empty, results are, or are sums of nothing."""
    found = prim.shape(*pieces, **params)
    memory = common([a for a in pieces if isinstance(a, ArrayKind)])
    if prim.multi:
        return tuple(memory.held(memory.zeros(shape, kind)) for shape, kind in found)
    return memory.held(memory.zeros(*found))


def _in_order(local: Any) -> Any:
    """``local``, of another kind than numpy's, with its elements in order."""
    if not local.has_data:
        return local
    raw = memory_of(local).raw(local)
    return local if raw.flags.c_contiguous else local.copy("C")


def _outside(prim: Any, arrays: list, params: dict, choice: Choice, cls: type, mesh: Any) -> Any:
    """On a rank that is not in the mesh: shapes and types alone."""
    if prim.shape is None:
        raise PlacementError(
            f"{prim.name.strip('_')}: this rank is not in the mesh {mesh}, and the shape of the "
            "result depends on data; run the operation on the ranks of the mesh only"
        )
    found = prim.shape(*arrays, **params)
    metas = found if prim.multi else [found]
    placed = choice.outs or ((REPLICATE,) * mesh.ndim,) * len(metas)
    made = tuple(
        cls(np.empty((0,), kind), mesh, p, shape)
        for (shape, kind), p in zip(metas, placed, strict=True)
    )
    return made if prim.multi else made[0]


def replicates() -> bool:
    """Whether plain Tensors that meet DTensors are taken as replicated ones now."""
    return state().implicit > 0


class implicit_replication:  # noqa: N801  (used like a function)
    """Inside the block, plain Tensors that meet DTensors are taken as replicated ones."""

    def __enter__(self) -> None:
        state().implicit += 1

    def __exit__(self, *exc: object) -> None:
        state().implicit -= 1
