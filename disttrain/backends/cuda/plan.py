"""How a kernel runs on arrays of given shapes and strides: which functions, how many blocks, which
arguments. Pure; knows no device.

    plan = make_plan(kernel, [Operand.of(x), Operand.of(out)])
    for launch in plan.launches:
        data = pack(kernel, launch, pointers, scalars, scratch)     # the bytes of the struct

Grids depend on shapes alone, never on the device, so a result has the same bits on every run and
every GPU that computes the functions alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import ShapeError
from ..device.structs import Number, Pointer, Value, packed
from ..lang.expr import walk
from ..lang.kernel import COMPUTE, ITEMSIZE, Array, Kernel, Loop, Reduce, check
from .codegen.emit import function
from .codegen.forms import MOST, SLOT, THREADS, Form
from .codegen.layout import (
    NARROW,
    Axes,
    Operand,
    common_shape,
    dense,
    divider,
    memory_order,
    merge,
    reach,
    spread,
)
from .codegen.loops import named_types
from .codegen.rows import kept_arrays, summed_arrays

MAX_DIMS = 8  # axes that cannot be merged
_MOST_BLOCKS = 1 << 20
_PARTS = 1024  # partial results of one fold, or of one sum over rows
_ONE_BLOCK = 1 << 14  # elements that one block folds alone
# 32-bit registers of a thread for elements that stay; half where 1024 threads share. Not less where
# elements have addresses of their own: which thread has which is not to depend on the layout.
_REGISTERS = 64
_MOST_KEPT = 24  # elements of an array that a thread keeps: beyond, predicates are spilled
_TEAMS = 4  # rows at a time in a block whose rows belong to warps


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. ``values``: the members of the struct, except for the scalars."""

    form: Form
    grid: int
    values: dict[str, Value]

    @property
    def block(self) -> int:
        return self.form.threads


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order, and how much scratch memory (aligned to 256 bytes) they share."""

    launches: tuple[Launch, ...]
    scratch: int = 0


def make_plan(kernel: Kernel, operands: Sequence[Operand]) -> Plan:
    """How ``kernel`` runs on these arrays (in the order of its parameters, without the scalars).

    Raises ``DTypeError`` and ``ShapeError`` where they do not fit it."""
    check(kernel)
    shape = common_shape(kernel, operands)
    strides = [spread(kernel, p, o, shape) for p, o in zip(kernel.arrays, operands)]
    if 0 in shape:
        return Plan(())
    if not kernel.flat:
        return _row_plan(kernel, shape, strides)
    folds, whole = _needs(kernel)
    full = [k for k, p in enumerate(kernel.arrays) if p.space == "full"]
    lead = next((k for k in full if kernel.arrays[k].writes), full[0])
    axes = range(len(shape)) if whole else memory_order(shape, strides[lead])
    merged = merge(shape, strides, list(axes))
    _limit(kernel, merged)
    if folds and math.prod(shape) <= _ONE_BLOCK and len(merged.sizes) <= 1:
        one_row = (1, math.prod(shape))
        steps = [(0, *(s or (0,))) for s in merged.strides]
        return _row_plan(kernel, one_row, steps)
    return _flat_plan(kernel, shape, merged, folds)


def _needs(kernel: Kernel) -> tuple[bool, bool]:
    """Whether a flat kernel folds, and whether the order of its elements matters."""
    statements = [s for step in kernel.steps if isinstance(step, Loop) for s in step.body]
    folds = any(isinstance(s, Reduce) for s in statements)
    placed = any(n.op in ("index", "load") for s in statements for n in walk(s.value))
    return folds, folds or placed


def _limit(kernel: Kernel, axes: Axes) -> None:
    if len(axes.sizes) > MAX_DIMS:
        raise ShapeError(
            f"kernel {kernel.name}: arrays of {len(axes.sizes)} axes that cannot be merged; "
            f"at most {MAX_DIMS} are handled. Make them contiguous first"
        )


def _words(p: Array) -> int:
    return 2 if COMPUTE[p.dtype] in ("int64", "float64") else 1


def vector_of(kernel: Kernel) -> int:
    """Elements that a thread handles side by side: 16 bytes of the narrowest array, at most 8, and
    no more than registers can hold."""
    moving = [p for p in kernel.arrays if p.space in ("full", "col")]
    v = min(8, 16 // min(ITEMSIZE[p.dtype] for p in moving))
    while v > 1 and v * sum(map(_words, moving)) > 48:
        v //= 2
    return v


# -- flat kernels ----------------------------------------------------------------------------------


def _flat_plan(kernel: Kernel, shape: tuple[int, ...], axes: Axes, folds: bool) -> Plan:
    n, v = math.prod(shape), vector_of(kernel)
    full = [k for k, p in enumerate(kernel.arrays) if p.space == "full"]
    sizes = axes.sizes or (1,)
    strides = [s or (ITEMSIZE[p.dtype],) for p, s in zip(kernel.arrays, axes.strides)]
    plain = len(sizes) == 1 and (
        n == 1 or all(strides[k] == (ITEMSIZE[kernel.arrays[k].dtype],) for k in full)
    )
    far = max(reach(sizes, strides[k]) for k in full)
    wide = n >= NARROW or (not plain and far >= 2 * NARROW)
    form = Form("flat", v if plain or folds else 1, 0 if plain else len(sizes), wide)
    values = dict[str, Value](_pointers(kernel))
    values["n"] = n
    if not plain:
        values |= _axis_values(form, sizes, {k: strides[k] for k in full})
    per_block = THREADS * form.vector * (4 if folds else 1)
    grid = min(-(-n // per_block), _PARTS if folds else _MOST_BLOCKS)
    return _stages(kernel, form, grid, values)


def _stages(kernel: Kernel, form: Form, grid: int, values: dict[str, Value]) -> Plan:
    """A launch per loop, and one between loops where there is something to do."""
    launches: list[Launch] = []
    steps = kernel.steps
    slots = len(named_types(kernel)[1])
    part = -(-slots * SLOT // 256) * 256
    most = 0
    values = {**values, "vals": Pointer(-1, 0), "part": Pointer(-1, part)}
    between = Form("finish", 1, form.dims, form.wide)
    if not isinstance(steps[0], Loop):
        launches.append(Launch(between, 1, {**values, "parts": 0}))
    for k, step in enumerate(steps):
        if not isinstance(step, Loop):
            continue
        here = Form("flat", form.vector, form.dims, form.wide, k)
        launches.append(Launch(here, grid, values))
        folds = sum(isinstance(s, Reduce) for s in step.body)
        most = max(most, folds)
        if folds or (k + 1 < len(steps) and not isinstance(steps[k + 1], Loop)):
            launches.append(Launch(replace(between, step=k + 1), 1, {**values, "parts": grid}))
    needed = len(launches) > 1
    return Plan(tuple(launches), part + most * grid * SLOT if needed else 0)


def _pointers(kernel: Kernel) -> dict[str, Value]:
    return {f"p{k}": Pointer(k) for k in range(len(kernel.arrays))}


def _axis_values(
    form: Form, sizes: Sequence[int], strides: Mapping[int, Sequence[int]]
) -> dict[str, Value]:
    values: dict[str, Value] = {"size": tuple(sizes)}
    if not form.wide:
        values["mul"] = tuple(divider(d)[0] for d in sizes)
        values["shift"] = tuple(divider(d)[1] for d in sizes)
    return values | {f"t{k}": tuple(s) for k, s in strides.items()}


# -- many arrays at once ---------------------------------------------------------------------------


def plan_many(kernel: Kernel, sets: Sequence[Sequence[Operand]]) -> Plan:
    """A flat kernel of one loop, which folds nothing, on many sets of arrays with the same scalars.

    ``Pointer.array`` counts through all sets: set * arrays + array. The arrays of a set must have
    one shape and lie alike, without gaps; ``ShapeError`` otherwise."""
    check(kernel)
    folds, placed = _needs(kernel)
    alone = len(kernel.steps) == 1 and all(p.space == "full" for p in kernel.arrays)
    assert alone and kernel.flat and not (folds or placed), kernel.name
    there = []
    for k, operands in enumerate(sets):
        shape = common_shape(kernel, operands)
        if math.prod(shape) > 0:
            _lie_alike(kernel, operands, shape, k)
            there.append((k, math.prod(shape)))
    launches = [_many(kernel, there[k : k + MOST]) for k in range(0, len(there), MOST)]
    return Plan(tuple(launches))


def _lie_alike(
    kernel: Kernel, operands: Sequence[Operand], shape: tuple[int, ...], number: int
) -> None:
    strides = [spread(kernel, p, o, shape) for p, o in zip(kernel.arrays, operands)]
    merged = merge(shape, strides, memory_order(shape, strides[0]))
    if any(s and s != (ITEMSIZE[p.dtype],) for p, s in zip(kernel.arrays, merged.strides)):
        raise ShapeError(
            f"kernel {kernel.name}: the arrays of set {number}, of shape {shape}, have gaps or lie "
            "in different orders; make them contiguous, or run them by themselves"
        )


def _many(kernel: Kernel, sets: Sequence[tuple[int, int]]) -> Launch:
    v, count = vector_of(kernel), len(kernel.arrays)
    blocks = [min(-(-n // (THREADS * v * 2)), 1 << 16) for _, n in sets]
    starts = [0]
    for b in blocks:
        starts.append(starts[-1] + b)
    pad = MOST - len(sets)
    values: dict[str, Value] = {
        f"p{k}": (*(Pointer(s * count + k) for s, _ in sets), *[0] * pad) for k in range(count)
    }
    values["n"] = (*(n for _, n in sets), *[0] * pad)
    values["start"] = (*starts, *[starts[-1]] * pad)
    values["count"] = len(sets)
    wide = max(n for _, n in sets) >= NARROW
    return Launch(Form("many", v, wide=wide), starts[-1], values)


# -- row kernels -----------------------------------------------------------------------------------


def _row_plan(kernel: Kernel, shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> Plan:
    rows, cols = math.prod(shape[:-1]), shape[-1]
    by_row = [k for k, p in enumerate(kernel.arrays) if p.space in ("full", "row")]
    moving = [k for k, p in enumerate(kernel.arrays) if p.space in ("full", "col")]
    outer = merge(shape, [strides[k] for k in by_row], range(len(shape) - 1))
    _limit(kernel, outer)
    sizes = outer.sizes or (1,)
    steps = {k: s or (0,) for k, s in zip(by_row, outer.strides)}
    used = {k: (steps.get(k), strides[k][-1]) for k in sorted({*by_row, *moving})}
    plain = len(sizes) == 1 and all(
        _plain(kernel.arrays[k], outward, step, rows, cols) for k, (outward, step) in used.items()
    )
    nowhere = (0,) * len(sizes)
    far = max(reach((*sizes, cols), (*(o or nowhere), step)) for o, step in used.values())
    wide = max(rows, cols) >= NARROW or (not plain and far >= 2 * NARROW)
    form = row_form(kernel, cols, 0 if plain else len(sizes), wide)
    summed = summed_arrays(kernel)
    grid = min(-(-rows // form.teams), _PARTS // form.teams if summed else _MOST_BLOCKS)
    values = dict[str, Value](_pointers(kernel)) | {"rows": rows, "cols": cols}
    if not plain:
        values |= _axis_values(form, sizes, steps)
        values |= {f"c{k}": strides[k][-1] for k in moving}
    return _with_sums(kernel, Launch(form, grid, values), strides, summed)


def _plain(p: Array, steps: tuple[int, ...] | None, step: int, rows: int, cols: int) -> bool:
    """Whether an array lies as one made for this shape would."""
    size = ITEMSIZE[p.dtype]
    if p.space in ("full", "col") and step != size and cols > 1:
        return False
    if steps is None or rows == 1:
        return True
    return steps == (size * (cols if p.space == "full" else 1),)


def _with_sums(
    kernel: Kernel, launch: Launch, strides: Sequence[Sequence[int]], summed: list[str]
) -> Plan:
    """Give each sum over rows its place in scratch memory, and a launch that adds it up."""
    form, rows, cols = launch.form, launch.values["rows"], launch.values["cols"]
    assert isinstance(rows, int) and isinstance(cols, int)
    values, folds, end = dict(launch.values), [], 0
    teams = launch.grid * form.teams
    for k, p in enumerate(kernel.arrays):
        if p.name not in summed:
            continue
        columns = cols if p.space == "col" else 1
        place = Pointer(-1, end)
        end += -(-teams * columns * ITEMSIZE[COMPUTE[p.dtype]] // 256) * 256
        values[f"m{k}"] = place
        stride = strides[k][-1] if p.space == "col" else 0
        given: dict[str, Value] = {"p0": Pointer(k), "part": place, "cols": columns}
        given |= {"parts": min(teams, rows), "stride": stride}
        folds.append(Launch(Form("fold", array=p.name), -(-columns // 32), given))
    return Plan((Launch(form, launch.grid, values), *folds), end)


def row_form(kernel: Kernel, cols: int, dims: int, wide: bool) -> Form:
    """Threads of a team, and vectors that each keeps, by the length of rows and what is kept."""
    v = vector_of(kernel)
    while v > 1 and 32 * v > 1 << (cols - 1).bit_length():
        v //= 2
    spaces = {p.name: p for p in kernel.arrays}
    kept = [*kept_arrays(kernel), *(n for n in summed_arrays(kernel) if spaces[n].space == "col")]
    words = sum(_words(spaces[n]) for n in kept)
    for team in (32, 128, 256, 512, 1024):
        items = -(-cols // (team * v))
        room = (_REGISTERS if team < 1024 else _REGISTERS // 2) // (v * (words + 1))
        if items <= min(max(room, 1), _MOST_KEPT // v):
            return _team(v, dims, wide, team, items if kept else 0)
    return _team(v, dims, wide, 512, 0)


def _team(v: int, dims: int, wide: bool, team: int, items: int) -> Form:
    teams = _TEAMS if team == 32 else 1
    return Form("rows", v, dims, wide, team=team, teams=teams, items=items)


# -- bytes -----------------------------------------------------------------------------------------


def pack(
    kernel: Kernel,
    launch: Launch,
    pointers: Sequence[int],
    scalars: Sequence[float],
    scratch: int = 0,
) -> bytes:
    """The struct that ``launch`` takes: ``pointers`` are the arrays' addresses, ``scratch`` that of
    the plan's scratch memory."""
    fields = function(kernel, launch.form)[1]
    return packed(fields, with_scalars(kernel, launch), pointers, scalars, scratch)


def with_scalars(kernel: Kernel, launch: Launch) -> dict[str, Value]:
    """The members of the struct, the scalars too: ``s0``, ``s1`` ..."""
    return {**launch.values, **{f"s{k}": Number(k) for k in range(len(kernel.scalars))}}


__all__ = ["Launch", "Operand", "Plan", "Pointer", "dense", "make_plan", "pack", "plan_many"]
