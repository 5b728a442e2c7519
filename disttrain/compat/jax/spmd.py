"""``pmap`` and ``shard_map``: one function on all devices, whose collectives name axes.

Both are batched functions with named axes: over ranks each computes its own example, in one process
all are computed at once (``distributed.tensor.shard_map``, ``func.spread``, ``func.vmap``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ... import distributed as dist
from ...core.tensor import Tensor
from ...distributed.tensor.shard_map import NotReplicated, mapped
from ...errors import ShapeError
from ...func.levels import settle
from ...func.spread import Ranks
from . import devices as place
from . import sharding as lies
from . import tree
from .array import Array, wrap
from .errors import short
from .jit import jit
from .sharding import Mesh, NamedSharding, PartitionSpec
from .transforms import Flat, check_callable, named, vmap

_registry = tree.default_registry


# --- shard_map ------------------------------------------------------------------------------------
class _Infer:
    """Specs that are those of the arguments."""


Infer: Any = _Infer()


def shard_map(
    f: Callable | None = None, /, *, out_specs: Any, in_specs: Any = Infer, mesh: Any = None,
    axis_names: Any = frozenset(), check_vma: bool = True,
) -> Any:  # fmt: skip
    """``f`` of shards as a function of whole arrays."""
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names,
            check_vma=check_vma,
        )  # fmt: skip
    check_callable(f)
    if isinstance(axis_names, str):
        axis_names = {axis_names}

    def wrapped(*args: Any) -> Any:
        over = _mesh(mesh, axis_names)
        flat = Flat(f, args)
        specs = _in_specs(f, over, axis_names, in_specs, flat, args)
        found: list = []

        def ends(outs: list) -> list:
            result = flat.form.build(iter(outs))
            found[:] = _checked("out_specs", over, axis_names, out_specs, result)
            for t, spec in zip(outs, found, strict=True):
                if len(spec) > len(t.meta()[0]):
                    raise ValueError(_too_long_out(f, spec, wrap(t)))
            return found

        try:
            outs = mapped(
                flat, over.over(axis_names), flat.tensors, specs, ends, check_vma, check_vma
            )
        except NotReplicated as error:
            raise ValueError(_varying(f, over, found[error.number], error.axes)) from None
        result = flat.tree(outs)
        return _marked(result, over, found)

    return named(wrapped, f)


def shard_map_old(
    f: Callable, mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True,
    auto: Any = frozenset(), check_vma: bool | None = None,
) -> Any:  # fmt: skip
    """``jax.experimental.shard_map.shard_map``."""
    names = frozenset(mesh.axis_names) - frozenset(auto) if auto else frozenset()
    check = check_rep if check_vma is None else check_vma
    return shard_map(
        f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=check
    )


def _mesh(mesh: Any, axis_names: Any) -> Mesh:
    found = lies.get_mesh() if mesh is None else mesh
    if found.empty:
        raise ValueError(
            "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to enter into a mesh "
            "context"
        )
    if not set(axis_names) <= set(found.axis_names):
        raise ValueError(
            f"jax.shard_map requires axis_names={set(axis_names)} to be a subset of "
            f"mesh.axis_names={found.axis_names}"
        )
    if axis_names and place.spread() and set(axis_names) != set(found.axis_names):
        raise NotImplementedError(
            f"shard_map over ranks with axis_names={set(axis_names)}, which are not all of "
            f"{found.axis_names}, is not there: name all axes"
        )
    return found


def _in_specs(f: Any, mesh: Mesh, axes: Any, in_specs: Any, flat: Flat, args: tuple) -> list:
    if in_specs is Infer:
        specs = [getattr(lies.sharding_of(a), "spec", PartitionSpec()) for a in flat.given]
    else:
        if isinstance(in_specs, list):
            in_specs = tuple(in_specs)
        specs = _checked("in_specs", mesh, axes, in_specs, args)
    for i, (a, spec) in enumerate(zip(flat.given, specs, strict=True)):
        if len(spec) > a.ndim:
            raise ValueError(
                f"shard_map applied to the function '{_name(f)}' was given an in_specs entry which "
                "is too long to be compatible with the corresponding input value from the "
                f"function:\n\nin_specs is {spec} which has length {len(spec)}, but the passed "
                f"args[{i}] has shape {short(a)}, which has rank {a.ndim} (and {a.ndim} < "
                f"{len(spec)})\n\nEntries in in_specs must be of length no greater than the number "
                "of axes in the corresponding input value."
            )
        _check_divided(f, mesh, i, a, spec)
    return specs


def _check_divided(f: Any, mesh: Mesh, i: int, a: Array, spec: PartitionSpec) -> None:
    try:
        NamedSharding(mesh, spec).check(a.shape)
    except lies.IndivisibleError as error:
        raise ValueError(
            f"shard_map applied to the function '{_name(f)}' was given argument arrays with axis "
            "sizes that are not evenly divisible by the corresponding mesh axis sizes:\n\nThe mesh "
            f"given has shape {mesh.axis_sizes} with corresponding axis names {mesh.axis_names}.\n"
            f"\nthe passed args[{i}] of shape {short(a)} corresponds to in_specs of value {spec}: "
            f"{error}"
        ) from None


def _checked(where: str, mesh: Mesh, axes: Any, specs: Any, value: Any) -> list:
    """One spec per leaf of ``value``."""
    manual = set(axes) or set(mesh.axis_names)
    leaves = _registry.flatten(specs)[0]
    for spec in leaves:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map {where} argument must be a pytree of `jax.sharding.PartitionSpec` "
                f"instances, but:\n\n  {where} is {spec} of type {type(spec).__name__}, \n\nCheck "
                f"the {where} values passed to shard_map."
            )
        for name in spec.axes():
            if name not in manual:
                raise ValueError(
                    f"shard_map {where} argument must refer to an axis marked as manual "
                    f"({frozenset(manual)}), but:\n\n  {where} refers to '{name}'\n\nCheck the "
                    f"{where} values passed to shard_map."
                )
    found = tree.prefix_leaves(specs, value, f"shard_map {where}")
    return [PartitionSpec() if s is None else s for s in found]


def _name(f: Any) -> str:
    return getattr(f, "__name__", repr(f))


def _too_long_out(f: Any, spec: Any, out: Array) -> str:
    return (
        f"shard_map applied to the function '{_name(f)}' was given an out_specs entry which is too "
        "long to be compatible with the corresponding output value from the function:\n\n"
        f"out_specs is {spec} which has length {len(spec)}, but {_name(f)}(*args) has shape "
        f"{short(out)}, which has rank {out.ndim} (and {out.ndim} < {len(spec)})\n\nEntries in "
        "out_specs must be of length no greater than the number of axes in the corresponding "
        "output value.\n\nEither revise the spec to be shorter, or modify "
        f"'{_name(f)}' so that its outputs have sufficient rank."
    )


def _varying(f: Any, mesh: Mesh, spec: Any, axes: tuple) -> str:
    names = ", ".join(f"'{a}'" for a in axes)
    return (
        f"shard_map applied to the function '{_name(f)}' was given out_specs which require "
        "replication which can't be statically inferred given the mesh:\n\nThe mesh given has "
        f"shape {mesh.axis_sizes} with corresponding axis names {mesh.axis_names}.\n\nout_specs is "
        f"{spec} which implies that the corresponding output value is replicated across mesh axis "
        f"{names}, but could not infer replication over any axes\n\nCheck if these output values "
        "are meant to be replicated over those mesh axes. If not, consider revising the "
        "corresponding out_specs entries. If so, consider disabling the check by passing the "
        "check_vma=False argument to `jax.shard_map`."
    )


def _marked(result: Any, mesh: Mesh, specs: Sequence) -> Any:
    leaves, form = _registry.flatten(result)
    found = [lies.put(a, NamedSharding(mesh, s)) for a, s in zip(leaves, specs, strict=True)]
    return form.build(iter(found))


# --- pmap -----------------------------------------------------------------------------------------
def pmap(
    fun: Callable, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (), devices: Sequence | None = None,
    backend: str | None = None, axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Any:  # fmt: skip
    """``fun`` on all devices at once, each of which gets its own part of the mapped axes."""
    check_callable(fun)
    name = object() if axis_name is None else axis_name
    static = static_broadcasted_argnums
    fixed = (static,) if isinstance(static, int) else tuple(static)
    over = _over_ranks if place.spread() else _in_one

    def mapped_call(*args: Any, **kwargs: Any) -> Any:
        dynamic = [i for i in range(len(args)) if i not in fixed]
        axes = in_axes
        if isinstance(in_axes, (tuple, list)):
            axes = tuple(in_axes[i] for i in dynamic if i < len(in_axes))
            axes += (0,) * 0 if len(in_axes) == len(args) else ()

        def of(*given: Any, **named_: Any) -> Any:
            whole = list(args)
            for i, value in zip(dynamic, given, strict=True):
                whole[i] = value
            return fun(*whole, **named_)

        of.__name__ = _name(fun)
        return over(of, name, axes, out_axes, axis_size)(*[args[i] for i in dynamic], **kwargs)

    staged = jit(named(mapped_call, fun), static_argnums=fixed or None)

    def pmap_f(*args: Any, **kwargs: Any) -> Any:
        chosen = [a for i, a in enumerate(args) if i not in fixed]
        size = _size(fun, in_axes, fixed, args, chosen, kwargs, axis_size)
        known = place.local_devices() if devices is None else list(devices)
        if size > len(known):
            raise ValueError(
                f"compiling computation `{_name(fun)}` that requires {size} logical devices, but "
                f"only {len(known)} XLA devices are available (num_replicas={size})"
            )
        result = staged(*args, **kwargs)
        return result if place.spread() else _on_devices(result, out_axes, known[:size])

    pmap_f.lower = staged.lower  # type: ignore[attr-defined]
    return named(pmap_f, fun)


def _in_one(fun: Callable, name: Any, in_axes: Any, out_axes: Any, size: int | None) -> Callable:
    """All devices' examples at once."""
    return vmap(fun, in_axes, out_axes, axis_name=name, axis_size=size)


def _over_ranks(
    fun: Callable, name: Any, in_axes: Any, out_axes: Any, size: int | None
) -> Callable:
    """This rank's example, which comes and goes as one along the mapped axes."""

    def run(*args: Any, **kwargs: Any) -> Any:
        flat = Flat(fun, args, kwargs)
        axes = _axes(in_axes, args) + [0] * flat.of.children[1].num_leaves
        level = Ranks(dist.group.WORLD, name)
        own = [t if d is None else t.squeeze(d) for t, d in zip(flat.tensors, axes, strict=True)]
        with level.running():
            given = [
                t if d is None else level.wrap(t, 0) for t, d in zip(own, axes, strict=True)
            ]
            outs = settle(flat(*given))
            ends = tree.prefix_leaves(out_axes, flat.form.build(iter(range(len(outs)))), "pmap")
            left = [_left(level, o, d) for o, d in zip(outs, ends, strict=True)]
        return flat.tree(left)

    return run


def _left(level: Ranks, out: Tensor, axis: int | None) -> Tensor:
    if axis is not None:
        return level.leave(out).unsqueeze(axis)
    if level.owns(out) and level.differs(out):
        raise ValueError("at pmap out_axes, got axis spec None but output was batched on axis 0")
    return out.inner if level.owns(out) else out  # type: ignore[attr-defined]


def _axes(in_axes: Any, args: tuple) -> list:
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    return tree.prefix_leaves(axes, args, "pmap in_axes[0]")


def _size(
    fun: Any, in_axes: Any, fixed: tuple, args: tuple, chosen: list, kwargs: dict,
    given: int | None,
) -> int:  # fmt: skip
    """How many devices there is something for."""
    axes = in_axes
    if isinstance(in_axes, (tuple, list)) and len(in_axes) == len(args):
        axes = tuple(a for i, a in enumerate(in_axes) if i not in fixed)
    found = _axes(axes, tuple(chosen))
    leaves = _registry.flatten(tuple(chosen))[0]
    sizes = [_along(x, d) for x, d in zip(leaves, found, strict=True) if d is not None]
    sizes += [_along(x, 0) for x in _registry.flatten(kwargs)[0]]
    if not sizes:
        raise ValueError("pmap requires at least one argument with a mapped axis.")
    if len(set(sizes)) > 1:
        raise ValueError(
            "pmap got inconsistent sizes for array axes to be mapped: "
            f"the sizes along them are {sizes}"
        )
    if given is not None and given != sizes[0]:
        raise ValueError(f"Specified axis_size {given} doesn't match received axis_size {sizes[0]}.")
    return sizes[0]


def _along(x: Any, axis: int) -> int:
    shape = tuple(getattr(x, "shape", ()))
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"pmap was requested to map its argument along axis {axis}, which implies that its "
            f"rank should be at least {axis + 1 if axis >= 0 else -axis}, but is only "
            f"{len(shape)} (its shape is {shape})"
        )
    return shape[axis]


def _on_devices(result: Any, out_axes: Any, devices: list) -> Any:
    """The result, which lies on these devices along the mapped axes."""
    mesh = Mesh(devices, ("_internal_pmap_axis_name",))
    leaves, form = _registry.flatten(result)
    axes = tree.prefix_leaves(out_axes, result, "pmap out_axes")
    found = []
    for a, d in zip(leaves, axes, strict=True):
        cut = [] if d is None else [None] * (d % a.ndim) + list(mesh.axis_names)
        found.append(lies.put(a, NamedSharding(mesh, PartitionSpec(*cut))))
    return form.build(iter(found))


__all__ = ["ShapeError", "pmap", "shard_map", "shard_map_old"]
